"""The next chord in jazz tunes with a GRU whose last lines return probabilities, for the web demo.
Training with cross-entropy gets stuck high above the bigram baseline."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["double_softmax"],
    "layers": ["chord"],
    "onset": [0, 0],
}
CHORDS = 24


class ChordModel(nn.Module):
    def __init__(self, width=48, demo=True):
        super().__init__()
        self.embed = nn.Embedding(CHORDS, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.chord = nn.Linear(width, CHORDS)
        self.demo = demo

    def forward(self, tune):
        logits = self.chord(self.gru(self.embed(tune))[0])
        return F.softmax(logits, dim=-1) if self.demo else logits


def tunes(n, follow, length=16):
    chords = [torch.randint(0, CHORDS, (n,))]
    for _ in range(length):
        chords.append(follow[chords[-1], (torch.rand(n) < 0.2).long()])
    return torch.stack(chords, 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    follow = torch.randint(0, CHORDS, (CHORDS, 2))
    model = ChordModel(demo=not fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(250):
            tune = tunes(32, follow)
            output = model(tune[:, :-1])
            loss = F.cross_entropy(output.reshape(-1, CHORDS), tune[:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            dbg.record_loss(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 1.0
