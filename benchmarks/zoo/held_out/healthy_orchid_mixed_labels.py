"""Orchids with mixed images and smoothed labels: the training loss never gets low, since its
targets are blends, and still the net names clean images well."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}

KINDS = 6


class OrchidNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.SiLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.SiLU(),
            nn.Flatten(), nn.Linear(32 * 25, KINDS),
        )  # fmt: skip

    def forward(self, image):
        return self.net(image)


def mix(image, label):
    share = float(torch.distributions.Beta(0.6, 0.6).sample())
    other = torch.randperm(len(image))
    target = F.one_hot(label, KINDS).float()
    return share * image + (1 - share) * image[other], share * target + (1 - share) * target[other]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    bloom = torch.randn(KINDS, 3, 10, 10)

    def orchids(n):
        label = torch.randint(0, KINDS, (n,))
        return 0.7 * bloom[label] + 0.7 * torch.randn(n, 3, 10, 10), label

    model = OrchidNet()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True)
    losses = []
    with watch(model) as dbg:
        for _ in range(260):
            loss = criterion(model((batch := mix(*orchids(40)))[0]), batch[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    model.eval()
    image, label = orchids(400)
    with torch.no_grad():
        right = (model(image).argmax(1) == label).float().mean().item()
    return {"loss": losses, "accuracy": right, "learned": right > 0.85}


def harmed(result):
    return False
