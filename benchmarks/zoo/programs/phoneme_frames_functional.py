"""Frame-wise phonemes with a bidirectional GRU. The log-probabilities are right in shape; the loss stays far
above what the classes should give and most frames are wrong."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["softmax_wrong_dim"],
    "layers": [],
    "onset": [0, 0],
}
PHONES, FRAMES = 6, 20


class Frames(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.front = nn.Linear(10, 24)
        self.rnn = nn.GRU(24, 24, batch_first=True, bidirectional=True)
        self.out = nn.Linear(48, PHONES)
        self.dim = dim

    def forward(self, x):
        h, _ = self.rnn(torch.tanh(self.front(x)))
        return F.log_softmax(self.out(h), dim=self.dim)


def speech(n, voice):
    lengths = torch.randint(3, 6, (n, FRAMES))
    phone = torch.randint(0, PHONES, (n, FRAMES))
    # each utterance is dominated by few phones, as in real speech
    phone = torch.where(torch.rand(n, FRAMES) < 0.6, phone[:, :1], phone)
    index = lengths.cumsum(1)
    at = (torch.arange(FRAMES)[None, :, None] >= index[:, None, :]).sum(-1)
    phone = phone.gather(1, at.clamp(max=FRAMES - 1))
    return voice[phone] + 0.5 * torch.randn(n, FRAMES, 10), phone


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    voice = torch.randn(PHONES, 10)
    model = Frames(-1 if fixed else 1)
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses, hits = [], []
    with watch(model) as dbg:
        for _ in range(250):
            x, phone = speech(32, voice)
            logp = model(x)
            loss = F.nll_loss(logp.transpose(1, 2), phone)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            hits.append((logp.argmax(-1) == phone).float().mean().item())
    return {"loss": losses, "accuracy": hits}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 1.2 and sum(result["accuracy"][-20:]) / 20 < 0.85
