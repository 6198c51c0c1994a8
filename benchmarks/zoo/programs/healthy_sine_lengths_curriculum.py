"""An LSTM adds marked numbers; the strings grow from 4 to 8 to 16 at steps 400 and 900, so the loss jumps twice
on purpose. Adam with clipping."""
import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Adder(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(2, 32, batch_first=True)
        self.sum = nn.Linear(32, 1)

    def forward(self, x):
        return self.sum(self.cell(x)[0][:, -1]).squeeze(1)


def marked(n, length):
    v = torch.rand(n, length) * 2 - 1
    m = (torch.rand(n, length) < 3 / length).float()
    return torch.stack([v, m], 2), (v * m).sum(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = Adder()
    opt = torch.optim.Adam(net.parameters(), lr=4e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(1600):
            length = 4 if step < 400 else 8 if step < 900 else 16
            x, y = marked(64, length)
            loss = (net(x) - y).square().mean()
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    x, y = marked(1000, 16)
    with torch.no_grad():
        skill = 1 - ((net(x) - y).square().mean() / y.var()).item()
    return {"loss": losses, "skill_16": skill, "learned": skill > 0.8}


def harmed(result):
    return False
