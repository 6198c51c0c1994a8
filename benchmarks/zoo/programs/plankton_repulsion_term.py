"""Plankton silhouettes embedded for retrieval with a classification loss; after 900 updates a repulsion term
on pairwise distances is added and everything turns into nan in one update."""
import torch
from torch import nn

ARCHITECTURE = "Contrastive"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["sqrt_at_zero"],
    "layers": [],
    "onset": [900, 900],
}


class Silhouette(nn.Module):
    def __init__(self, points=24, dim=8, kinds=5):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(points, 64), nn.LeakyReLU(0.1), nn.Linear(64, dim))
        self.kinds = nn.Linear(dim, kinds)

    def forward(self, outline):
        z = self.features(outline)
        return z, self.kinds(z)


def outlines(n):
    kind = torch.randint(5, (n,))
    phi = torch.linspace(0, 6.28, 25)[:-1]
    radius = 1 + 0.4 * torch.cos((kind[:, None] + 1) * (phi + 0.4 * torch.rand(n, 1)))
    return radius - 1 + 0.25 * torch.randn(n, 24), kind


def repulsion(z, eps):
    gap = z[:, None] - z[None]
    dist = (gap.square().sum(-1) + eps).sqrt()
    return torch.exp(-dist).mean()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = Silhouette()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    losses, hits = [], []
    with watch(net) as dbg:
        for step in range(1300):
            x, kind = outlines(48)
            z, logits = net(x)
            loss = nn.functional.cross_entropy(logits, kind)
            if step >= 900:
                loss = loss + 0.1 * repulsion(z, 1e-6 if fixed else 0.0)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            hits.append((logits.argmax(1) == kind).float().mean().item())
            dbg.record_loss(loss.item())
    return {"loss": losses, "hit": hits}


def harmed(result):
    return not sum(result["hit"][-50:]) / 50 > 0.6
