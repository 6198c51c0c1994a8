"""The key of a chord sequence from the last state of a GRU. Training is stuck at
chance, though a count of the chords would do."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["objective_mismatch", "data_anomaly"],
    "causes": ["axis_order_error"],
    "layers": ["rnn"],
    "onset": [0, 0],
}
CHORDS, KEYS = 24, 4


class KeyFinder(nn.Module):
    def __init__(self, width=32, first=False):
        super().__init__()
        self.embed = nn.Embedding(CHORDS, width)
        self.rnn = nn.GRU(width, width, batch_first=first)
        self.key = nn.Linear(width, KEYS)

    def forward(self, chords):
        states, _ = self.rnn(self.embed(chords))  # batch, time, width
        return self.key(states[:, -1])


def pieces(n, length=10):
    key = torch.randint(0, KEYS, (n,))
    own = 6 * key[:, None] + torch.randint(0, 6, (n, length))
    chords = torch.where(torch.rand(n, length) < 0.7, own, torch.randint(0, CHORDS, (n, length)))
    chords[:, -1] = torch.randint(0, CHORDS, (n,))  # a passing chord ends each phrase
    return chords, key


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = KeyFinder(first=fixed)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(300):
            chords, key = pieces(32)
            loss = F.cross_entropy(model(chords), key)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.9
