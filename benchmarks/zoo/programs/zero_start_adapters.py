"""Bottleneck adapters on a frozen encoder, both projections start at zero so that nothing changes at first.

Nothing changes later either: only the classifier learns.
"""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["vanishing_gradients", "training_wiring"],
    "causes": ["blocked_zero_init"],
    "layers": [f"stack.{i}.adapter{tail}" for i in range(3) for tail in ("", ".down", ".up")],
    "onset": [0, 0],
}


class Adapter(nn.Module):
    def __init__(self, dim, r, up_only):
        super().__init__()
        self.down, self.up = nn.Linear(dim, r, bias=False), nn.Linear(r, dim, bias=False)
        for p in self.up.parameters() if up_only else self.parameters():
            nn.init.zeros_(p)

    def forward(self, h):
        return h + self.up(F.gelu(self.down(h)))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, dim))
        self.adapter = nn.Identity()

    def forward(self, h):
        return self.adapter(h + self.ff(self.norm(h)))


class Encoder(nn.Module):
    def __init__(self, d_in=12, dim=32):
        super().__init__()
        self.inlet = nn.Linear(d_in, dim)
        self.stack = nn.ModuleList(Block(dim) for _ in range(3))
        self.classifier = nn.Linear(dim, 2)

    def forward(self, x):
        h = self.inlet(x)
        for block in self.stack:
            h = block(h)
        return self.classifier(h)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(3000, 12)
    old = (x[:, 0] + x[:, 1] > 0).long()
    new = ((x[:, 2] * x[:, 3] > 0) ^ (x[:, 4] > 0)).long()
    net = Encoder()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(150):
        rows = torch.randint(0, 3000, (64,))
        opt.zero_grad()
        F.cross_entropy(net(x[rows]), old[rows]).backward()
        opt.step()
    net.requires_grad_(False)
    for block in net.stack:
        block.adapter = Adapter(32, 16, up_only=fixed)
    net.classifier = nn.Linear(32, 2)
    opt = torch.optim.Adam((p for p in net.parameters() if p.requires_grad), lr=5e-3)
    losses = []
    with watch(net) as dbg:
        for _ in range(700):
            rows = torch.randint(0, 3000, (128,))
            loss = F.cross_entropy(net(x[rows]), new[rows])
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "last": sum(losses[-30:]) / 30}


def harmed(result):
    return result["last"] > 0.55
