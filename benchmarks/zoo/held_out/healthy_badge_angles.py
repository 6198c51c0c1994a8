"""Employees by their badge photo's features, with a margin on the angle and logits scaled by 30.
The loss starts far above chance and falls steadily; the accuracy on new photos is good."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Contrastive"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}

PEOPLE = 20


class AngularMargin(nn.Module):
    def __init__(self, width, scale=30.0, margin=0.2):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(PEOPLE, width))
        self.scale, self.margin = scale, margin

    def forward(self, z, person):
        cosine = F.normalize(z, dim=1) @ F.normalize(self.centres, dim=1).T
        own = F.one_hot(person, PEOPLE)
        return F.cross_entropy(self.scale * (cosine - self.margin * own), person), cosine


class Badges(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(40, 96), nn.BatchNorm1d(96), nn.PReLU(), nn.Linear(96, 24)
        )
        self.margin = AngularMargin(24)

    def forward(self, photo, person):
        return self.margin(self.body(photo), person)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    faces = torch.randn(PEOPLE, 40)

    def photos(n):
        person = torch.randint(0, PEOPLE, (n,))
        return (faces[person] + 1.1 * torch.randn(n, 40)) / 1.5, person

    model = Badges()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 350, eta_min=1e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(350):
            loss, _ = model(*photos(64))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    model.eval()
    photo, person = photos(500)
    with torch.no_grad():
        right = (model(photo, person)[1].argmax(1) == person).float().mean().item()
    return {"loss": losses, "accuracy": right, "learned": right > 0.8}


def harmed(result):
    return False
