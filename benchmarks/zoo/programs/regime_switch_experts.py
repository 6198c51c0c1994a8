"""Top-1 experts on shared features, one specialist per market regime was the idea; no balancing term.

All traffic goes to one expert within a few updates; adding experts changes nothing.
"""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "MoE"
TRUTH = {
    "failures": ["representation_collapse", "dead_neurons", "optimizer_instability"],
    "causes": ["router_collapse"],
    "layers": ["moe", "moe.gate", "moe.experts"] + [f"moe.experts.{i}" for i in range(8)],
    "onset": [0, 60],
}


class TopOne(nn.Module):
    def __init__(self, d, out, n):
        super().__init__()
        self.gate = nn.Linear(d, n, bias=False)
        nn.init.normal_(self.gate.weight, std=0.1)
        self.experts = nn.ModuleList(nn.Linear(d, out) for _ in range(n))

    def forward(self, h):
        p = F.softmax(self.gate(h), dim=-1)
        top, idx = p.max(-1)
        y = h.new_zeros(len(h), self.experts[0].out_features)
        for e in idx.unique().tolist():
            hit = idx == e
            y[hit] = top[hit, None] * self.experts[e](h[hit])
        load = torch.bincount(idx, minlength=p.shape[1]) / len(h)
        return y, {"load": load, "balance": p.shape[1] * (load * p.mean(0)).sum()}


class RegimeModel(nn.Module):
    def __init__(self, n=8, d=24):
        super().__init__()
        self.trunk = nn.Linear(12, d)
        self.moe = TopOne(d, 6, n)

    def forward(self, x):
        return self.moe(self.trunk(x) + 3.5)


def market(n, maps):
    regime = torch.randint(0, len(maps), (n,))
    x = torch.randn(n, 12)
    x[:, 6:] = 2.0 * F.one_hot(regime, 6) + 0.1 * x[:, 6:]
    return x, torch.einsum("bi,bio->bo", x[:, :6], maps[regime])


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    maps = torch.randn(6, 6, 6) / 6**0.5
    model = RegimeModel()
    gate, rest = [], []
    for name, p in model.named_parameters():
        (gate if "gate" in name else rest).append(p)
    opt = torch.optim.Adam([{"params": rest}, {"params": gate, "lr": 3e-3}], lr=6e-3)
    curve = []
    with watch(model) as dbg:
        for step in range(240):
            x, y = market(192, maps)
            guess, info = model(x)
            mse = F.mse_loss(guess, y)
            loss = mse + 0.05 * info["balance"] if fixed else mse
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(mse.item())
            curve.append(mse.item())
    return {"loss": curve, "final": sum(curve[-20:]) / 20, "top_share": info["load"].max().item()}


def harmed(result):
    return result["final"] > 0.3
