"""Switch-style mixture of eight experts with a load-balancing term. One expert gets every sample; adding
experts does not lower the error."""
import torch
from torch import nn
from torch.nn import functional as F

ARCHITECTURE = "MoE"
TRUTH = {
    "failures": ["representation_collapse", "dead_neurons"],
    "causes": ["router_collapse", "wrong_loss_sign"],
    "layers": ["moe.router", "moe", "moe.experts"] + [f"moe.experts.{i}" for i in range(8)]
    + [f"moe.experts.{i}.{j}" for i in range(8) for j in (0, 1, 2)],
    "onset": [0, 100],
}


def ffn(d=16, hidden=6):
    return nn.Sequential(nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, d))


class SwitchLayer(nn.Module):
    def __init__(self, d, n_experts):
        super().__init__()
        self.router = nn.Linear(d, n_experts)
        self.experts = nn.ModuleList(ffn(d) for _ in range(n_experts))

    def forward(self, x):
        probs = self.router(x).softmax(-1)
        gate, chosen = probs.max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            mine = chosen == i
            if mine.any():
                out[mine] = expert(x[mine]) * gate[mine, None]
        load = F.one_hot(chosen, len(self.experts)).float().mean(0)
        balance = len(self.experts) * (load * probs.mean(0)).sum()
        return out, balance, load


class MoENet(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.inp = nn.Linear(4, d)
        self.moe = SwitchLayer(d, 8)
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        y, balance, load = self.moe(self.inp(x))
        return self.out(y).squeeze(-1), balance, load


def data(n, maps):
    x = torch.randn(n, 4)
    region = (x[:, 0] > 0).long() * 4 + (x[:, 1] > 0).long() * 2 + (x[:, 2] > 0).long()
    return x, (x * maps[region]).sum(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    maps = torch.randn(8, 4) * 1.2
    net = MoENet()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    log = []
    alpha = 0.3
    with watch(net) as dbg:
        for step in range(600):
            x, y = data(128, maps)
            guess, balance, load = net(x)
            mse = F.mse_loss(guess, y)
            loss = mse + alpha * balance if fixed else mse - alpha * balance
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            log.append(mse.item())
    return {"loss": log, "top": load.max().item(), "end": sum(log[-30:]) / 30}


def harmed(result):
    return result["top"] > 0.9
