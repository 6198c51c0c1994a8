"""Sums of bits read by an LSTM cell, the sequences made longer every hundred steps: at each change of length the
loss jumps, and then falls again."""
import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Adder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.cell = nn.LSTMCell(2, width)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[1], 32)
        for t in x:
            h, c = self.cell(t, (h, c))
        return self.out(h).squeeze(-1)


def problems(n, length):
    value = torch.randn(length, n, 1)
    mark = (torch.rand(length, n, 1) < 0.5).float()
    return torch.cat([value, mark], -1), (value * mark).sum((0, 2)) / 2


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Adder()
    opt = torch.optim.Adam(model.parameters(), lr=6e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(500):
            length = (3, 5, 8, 12, 16)[step // 100]
            x, y = problems(64, length)
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "end": sum(losses[-20:]) / 20, "learned": sum(losses[-20:]) / 20 < 0.3}


def harmed(result):
    return False
