"""Rare weld defects in scans. To start at the base rate the user sets the biases from a prior, as a well
known detector does. The score is the same for each scan and nothing moves but the last bias."""
import math

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["dead_neurons", "vanishing_gradients"],
    "causes": ["dying_relu"],
    "layers": ["layer1", "layer2", "layer1.0", "layer2.0", "layer1.1", "layer2.1"],
    "onset": [0, 0],
}


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Conv2d(12, 12, 3, stride=2, padding=1), nn.ReLU())
        self.score = nn.Linear(12, 1)

    def forward(self, scan):
        h = self.layer2(self.layer1(scan))
        return self.score(h.amax((2, 3))).squeeze(1)


def set_prior(model, prior, fixed):
    value = -math.log((1 - prior) / prior)
    for name, parameter in model.named_parameters():
        if name.endswith("bias") and (not fixed or name.startswith("score")):
            nn.init.constant_(parameter, value)


def scans(n, prior):
    bad = torch.rand(n) < prior
    scan = torch.randn(n, 1, 12, 12).clamp(-2, 2) * 0.5
    for i in bad.nonzero().flatten().tolist():
        r, c = torch.randint(1, 9, (2,)).tolist()
        scan[i, 0, r : r + 3, c : c + 3] += 1.5
    return scan, bad.float()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Detector()
    set_prior(model, 0.01, fixed)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(400):
            scan, bad = scans(64, 0.2)
            loss = F.binary_cross_entropy_with_logits(model(scan), bad)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            scan, bad = scans(600, 0.5)
            score = model(scan)
    order = (score[bad > 0][:, None] > score[bad < 1][None]).float().mean().item()
    return {"loss": losses, "auc": order}


def harmed(result):
    return result["auc"] < 0.8
