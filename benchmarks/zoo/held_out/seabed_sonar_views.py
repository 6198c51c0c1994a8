"""Learns seabed patches without labels from two looks at each, by a predictor between two branches
of one network. The loss reaches its best value within a minute; the features are worthless."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Contrastive"
TRUTH = {
    "failures": ["representation_collapse"],
    "causes": ["embedding_collapse"],
    "layers": ["encoder", "encoder.0", "encoder.1", "encoder.2", "encoder.3", "encoder.4",
               "encoder.5", "encoder.6", "predictor", "predictor.0", "predictor.1",
               "predictor.2", "predictor.3"],
    "onset": [0, 100],
}  # fmt: skip


class TwoLooks(nn.Module):
    def __init__(self, inputs=32, width=64, out=24):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, out),
        )  # fmt: skip
        self.predictor = nn.Sequential(
            nn.Linear(out, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, out)
        )

    def forward(self, look):
        z = self.encoder(look)
        return z, self.predictor(z)


def agreement(p, z):
    return -F.cosine_similarity(p, z, dim=-1).mean()


def looks(bottom, n):
    patch = bottom[torch.randint(0, len(bottom), (n,))] + 0.4 * torch.randn(n, bottom.shape[1])
    return patch + 0.3 * torch.randn_like(patch), patch + 0.3 * torch.randn_like(patch)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    bottom = torch.randn(60, 32)
    model = TwoLooks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    losses = []
    with watch(model) as dbg:
        for _ in range(300):
            one, two = looks(bottom, 96)
            (z1, p1), (z2, p2) = model(one), model(two)
            if fixed:
                z1, z2 = z1.detach(), z2.detach()
            loss = (agreement(p1, z2) + agreement(p2, z1)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
        spread = F.normalize(z1.detach(), dim=1).std(0).mean().item() * 24**0.5
    return {"loss": losses, "spread": spread}


def harmed(result):
    """Unit vectors spread over the sphere would give about one."""
    return result["spread"] < 0.3
