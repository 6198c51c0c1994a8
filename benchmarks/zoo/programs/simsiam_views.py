"""Self-supervised training of two augmented views; loss reaches -1 within a minute, a linear probe is at chance."""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "Contrastive"
TRUTH = {
    "failures": ["representation_collapse"],
    "causes": ["embedding_collapse"],
    "layers": [],
    "onset": None,
}


class SimNet(nn.Module):
    def __init__(self, d=32, dim=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, dim))
        self.predictor = nn.Sequential(nn.Linear(dim, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, dim))

    def forward(self, a, b):
        za, zb = self.encoder(a), self.encoder(b)
        return self.predictor(za), self.predictor(zb), za, zb


def agreement(p, z, stop):
    return -F.cosine_similarity(p, z.detach() if stop else z, dim=1).mean()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    center = torch.randn(10, 32)
    y = torch.randint(0, 10, (2000,))
    x = center[y] + 0.3 * torch.randn(2000, 32)

    def view(v):
        return (v + 0.6 * torch.randn_like(v)) * (torch.rand_like(v) > 0.2)

    net = SimNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    losses = []
    with watch(net) as dbg:
        for it in range(500):
            rows = torch.randint(0, 2000, (128,))
            pa, pb, za, zb = net(view(x[rows]), view(x[rows]))
            loss = (agreement(pa, zb, fixed) + agreement(pb, za, fixed)) / 2
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        z = F.normalize(net.encoder(x), dim=1)
    return {"loss": losses, "spread": (z.std(0).mean() * 32**0.5).item()}


def harmed(result):
    return result["spread"] < 0.3
