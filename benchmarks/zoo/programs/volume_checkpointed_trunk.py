"""A deep residual trunk over voxel columns, run under activation checkpointing to fit into memory.

Memory is fine now. The loss is that of a linear model on random features, and a warning scrolled by once.
"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

ARCHITECTURE = "ResNet"
TRUTH = {
    "failures": ["training_wiring", "vanishing_gradients"],
    "causes": ["checkpoint_without_input_grad", "detached_graph"],
    "layers": ["stem", "trunk"]
    + [f"trunk.{i}{s}" for i in range(3) for s in ("", ".norm", ".net", ".net.0", ".net.2")],
    "onset": [0, 0],
}


class Res(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.net = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d))

    def forward(self, x):
        return x + self.net(self.norm(x))


class ColumnNet(nn.Module):
    def __init__(self, d_in=16, d=32, reentrant=True):
        super().__init__()
        self.stem = nn.Linear(d_in, d)
        self.trunk = nn.ModuleList(Res(d) for _ in range(3))
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 3))
        self.reentrant = reentrant

    def entry(self, x):
        return self.trunk[0](torch.nn.functional.silu(self.stem(x)))

    def forward(self, columns):
        run = lambda f, x: checkpoint(f, x, use_reentrant=self.reentrant) if self.training else f(x)
        h = run(self.entry, columns)
        for block in self.trunk[1:]:
            h = run(block, h)
        return self.head(h)


def columns(n):
    x = torch.randn(n, 16)
    tissue = (x[:, :8].pow(2).sum(1) > 7.3).long() + (x[:, 8] * x[:, 9] > 0).long()
    return x, tissue


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = ColumnNet(reentrant=not fixed)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    model.train()
    curve = []
    with watch(model) as dbg:
        for step in range(400):
            x, y = columns(128)
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            curve.append(loss.item())
            dbg.record_loss(loss.item())
    model.eval()
    with torch.no_grad():
        x, y = columns(2000)
        acc = (model(x).argmax(1) == y).float().mean().item()
    return {"loss": curve, "accuracy": acc}


def harmed(result):
    return result["accuracy"] < 0.65
