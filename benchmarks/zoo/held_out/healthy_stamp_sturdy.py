"""A stamp classifier made sturdy: every step first looks for the worst small change of the image,
in eval mode and with a gradient of its own, and then trains on it."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class StampNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.country = nn.Linear(24 * 9, 5)

    def forward(self, x):
        return self.country(self.features(x).flatten(1))


def worst_nearby(model, image, label, reach):
    model.eval()
    image = image.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(F.cross_entropy(model(image), label), image)
    model.train()
    return (image + reach * slope.sign()).detach()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    motif = torch.randn(5, 1, 12, 12)

    def stamps(n):
        label = torch.randint(0, 5, (n,))
        return 0.8 * motif[label] + 0.7 * torch.randn(n, 1, 12, 12), label

    model = StampNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    losses = []
    with watch(model) as dbg:
        for _ in range(200):
            image, label = stamps(32)
            loss = F.cross_entropy(model(worst_nearby(model, image, label, 0.25)), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    image, label = stamps(300)
    changed = worst_nearby(model, image, label, 0.25)
    model.eval()
    with torch.no_grad():
        right = (model(changed).argmax(1) == label).float().mean().item()
    return {"loss": losses, "accuracy": right, "learned": right > 0.8}


def harmed(result):
    return False
