"""Two views, an online network with a predictor, a slow copy as the target without gradient: it must not collapse."""
import copy

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def encoder():
    return nn.Sequential(
        nn.Linear(36, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 24),
        nn.BatchNorm1d(24, affine=False),
    )


class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = encoder()
        self.predictor = nn.Sequential(nn.Linear(24, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 24))

    def forward(self, x):
        return self.predictor(self.encoder(x))


def augment(x):
    drop = (torch.rand_like(x) < 0.9).float()
    return drop * x * (1 + 0.2 * torch.randn(len(x), 1)) + 0.2 * torch.randn_like(x)


def probe(net, x, label):
    """Nearest class mean in the embedding."""
    net.eval()
    with torch.no_grad():
        z = F.normalize(net.encoder(x), dim=1)
    net.train()
    means = torch.stack([z[:500][label[:500] == c].mean(0) for c in range(8)])
    return (torch.cdist(z[500:], means).argmin(1) == label[500:]).float().mean().item(), z.std(0).mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    label = torch.randint(0, 8, (1000,))
    faces = 1.5 * torch.randn(8, 36)[label] + torch.randn(1000, 8) @ torch.randn(8, 36) * 0.5
    online = Online()
    target = copy.deepcopy(online.encoder).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=2e-3)
    losses = []
    with watch(online) as dbg:
        for step in range(300):
            x = faces[torch.randint(0, 1000, (64,))]
            one, two = augment(x), augment(x)
            with torch.no_grad():
                t1, t2 = target(one), target(two)
            loss = 2 - F.cosine_similarity(online(one), t2).mean() - F.cosine_similarity(online(two), t1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), online.encoder.parameters()):
                    slow.lerp_(fast, 0.02)
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    accuracy, spread = probe(online, faces, label)
    good = accuracy > 0.8 and spread > 0.1 and losses[-1] < 0.5 * losses[0]
    return {"loss": losses, "accuracy": accuracy, "spread": spread, "learned": good}


def harmed(result):
    return False
