"""Transfer: a backbone trained on shapes of one kind is frozen, a new head for another question is
trained on top of it."""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def drawings(n, side=12):
    """Bars: (picture, direction, thickness)."""
    direction = torch.randint(0, 2, (n,))
    thickness = torch.randint(1, 5, (n,))
    place = torch.randint(0, side - 5, (n,))
    row = torch.arange(side)
    band = ((row >= place[:, None]) & (row < (place + thickness)[:, None])).float()
    picture = torch.where(direction[:, None, None] == 1, band[:, :, None], band[:, None, :])
    return picture[:, None].expand(n, 1, side, side) + 0.4 * torch.randn(n, 1, side, side), direction, thickness - 1


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.head = nn.Linear(24 * 36, 8)

    def forward(self, picture):
        return self.head(self.backbone(picture))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(120):
        picture, direction, thickness = drawings(48)
        optimizer.zero_grad()
        F.cross_entropy(model(picture), direction * 4 + thickness).backward()
        optimizer.step()

    model.head = nn.Sequential(nn.Linear(24 * 36, 32), nn.ReLU(), nn.Linear(32, 4))
    for parameter in model.backbone.parameters():
        parameter.requires_grad = False
    optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(250):
            model.train()
            model.backbone.eval()
            picture, _, thickness = drawings(48)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(picture), thickness)
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    model.eval()
    picture, _, thickness = drawings(500)
    with torch.no_grad():
        accuracy = (model(picture).argmax(1) == thickness).float().mean().item()
    return {"loss": losses, "accuracy": accuracy, "learned": accuracy > 0.85}


def harmed(result):
    return False
