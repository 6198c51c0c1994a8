"""Copy-sum with a GRU under a curriculum: the sequences get longer every 120 steps, and harder; the loss jumps at
each stage and comes back."""
import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, 48, batch_first=True)
        self.read = nn.Linear(48, 1)

    def forward(self, x):
        return self.read(self.gru(x)[0][:, -1]).squeeze(-1)


def task(n, length):
    x = torch.randn(n, length, 3)
    gate = (torch.rand(n, length) < 0.3).float()
    x[..., 2] = gate
    return x, (x[..., 0] * gate).sum(1) / 2


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Counter()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for stage, length in enumerate((5, 10, 20, 40)):
            for _ in range(130):
                x, y = task(64, length)
                loss = nn.functional.mse_loss(model(x), y)
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses, "learned": sum(losses[-20:]) / 20 < 0.3}


def harmed(result):
    return False
