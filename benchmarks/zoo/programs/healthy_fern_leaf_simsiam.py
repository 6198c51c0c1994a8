"""SimSiam on leaves: no negatives, a stop-gradient on one side, a predictor on the other; the loss is a cosine and goes
to nearly minus one."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Contrastive"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class SimSiam(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(30, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32), nn.BatchNorm1d(32, affine=False)
        )
        self.predictor = nn.Sequential(nn.Linear(32, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 32))

    def forward(self, a, b):
        za, zb = self.encoder(a), self.encoder(b)
        pa, pb = self.predictor(za), self.predictor(zb)
        return -(F.cosine_similarity(pa, zb.detach()).mean() + F.cosine_similarity(pb, za.detach()).mean()) / 2


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    paint = torch.randn(6, 30)
    model = SimSiam()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    losses = []

    def leaves(n):
        kind = torch.randn(n, 6) @ paint
        return kind + 0.8 * torch.randn(n, 30), kind + 0.8 * torch.randn(n, 30)

    with watch(model) as dbg:
        for step in range(350):
            loss = model(*leaves(96))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    model.eval()
    a, b = leaves(200)
    with torch.no_grad():
        za, zb = F.normalize(model.encoder(a), dim=1), F.normalize(model.encoder(b), dim=1)
    near = ((za @ zb.T).argmax(1) == torch.arange(200)).float().mean().item()
    return {"loss": losses, "near": near, "learned": near > 0.7}


def harmed(result):
    return False
