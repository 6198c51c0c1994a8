"""Mixture of experts (top-1) regression on a piecewise function; eight experts are no better than one."""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "MoE"
TRUTH = {
    "failures": ["representation_collapse", "dead_neurons"],
    "causes": ["router_collapse"],
    "layers": ["moe.gate", "moe", "moe.experts"],
    "onset": None,
}


class MoE(nn.Module):
    def __init__(self, dim, experts=8):
        super().__init__()
        self.gate = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(dim, 6), nn.ReLU(), nn.Linear(6, dim)) for _ in range(experts))
        self.load = None

    def forward(self, x):
        prob = self.gate(x).softmax(-1)
        weight, choice = prob.max(-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            pick = choice == e
            if pick.any():
                out[pick] = weight[pick, None] * expert(x[pick])
        share = F.one_hot(choice, len(self.experts)).float().mean(0)
        self.load = share
        self.balance = len(self.experts) * (share * prob.mean(0)).sum()
        return out


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(8, 24), nn.ReLU())
        self.moe = MoE(24)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        h = self.stem(x)
        return self.out(self.moe(h))[:, 0]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed + 1)
    region = torch.randn(8, 8)
    slope = 2 * torch.randn(8, 8)
    def batch():
        x = 6 + torch.randn(256, 8)
        k = ((x - 6) @ region.T).argmax(1)
        return x, ((x - 6) * slope[k]).sum(1) / 4

    net = Regressor()
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses, tops = [], []
    with watch(net) as dbg:
        for step in range(600):
            x, y = batch()
            pred = net(x)
            task = F.mse_loss(pred, y)
            loss = task + 0.3 * net.moe.balance if fixed else task
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(task.item())
            losses.append(task.item())
            tops.append(net.moe.load.max().item())
    return {"loss": losses, "top": sum(tops[-50:]) / 50}


def harmed(result):
    return result["top"] > 0.85
