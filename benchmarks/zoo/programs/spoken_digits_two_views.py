"""Self-supervised embeddings of spoken-digit envelopes from two noisy views. The linear probe climbs for
600 updates and falls back afterwards while the training loss looks better than ever."""
import torch
from torch import nn

ARCHITECTURE = "Contrastive"
TRUTH = {
    "failures": ["representation_collapse"],
    "causes": ["embedding_collapse"],
    "layers": [],
    "onset": [600, 600],
}


def spread(z):
    return torch.relu(1 - (z.var(0) + 1e-4).sqrt()).mean()


def redundancy(z):
    z = z - z.mean(0)
    c = z.T @ z / (len(z) - 1)
    return (c.square().sum() - c.diagonal().square().sum()) / z.shape[1]


class Embedder(nn.Module):
    def __init__(self, width=40, dim=16):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(width, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 32), nn.GELU())
        self.projector = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, dim))

    def forward(self, x):
        h = self.trunk(x)
        return self.projector(h)


def probe(model, x, y):
    with torch.no_grad():
        h = model(x)
        h = torch.cat([h, torch.ones(len(h), 1)], 1)
        half = len(x) // 2
        onehot = nn.functional.one_hot(y, 10).float()
        w = torch.linalg.solve(h[:half].T @ h[:half] + 1e-2 * torch.eye(h.shape[1]), h[:half].T @ onehot[:half])
        return ((h[half:] @ w).argmax(1) == y[half:]).float().mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    words = torch.randn(10, 40)
    y = torch.randint(10, (3000,))
    x = words[y] + 1.5 * torch.randn(3000, 40)
    model = Embedder()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-3)
    weights = {"align": 10.0, "spread": 10.0, "redundancy": 1.0}
    losses, stds, probes = [], [], []
    with watch(model) as dbg:
        for step in range(1500):
            if step == 600:
                weights = {"align": 40.0, "spread": 10.0 if fixed else 0.0, "redundancy": 0.5}
            b = x[torch.randint(len(x), (96,))]
            z1 = model(b + 1.2 * torch.randn_like(b))
            z2 = model(b + 1.2 * torch.randn_like(b))
            loss = (
                weights["align"] * (z1 - z2).square().mean()
                + weights["spread"] * (spread(z1) + spread(z2))
                + weights["redundancy"] * (redundancy(z1) + redundancy(z2))
            )
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            stds.append(z1.detach().std(0).mean().item())
            if step % 300 == 299:
                probes.append(probe(model, x, y))
    return {"loss": losses, "std": stds, "probe": probes}


def harmed(result):
    return result["std"][-1] < 0.1
