"""Garment pictures and captions in one space, both normalised, with a temperature copied as its
inverse. The loss stays at the log of the batch size, and far too few pairs are matched."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["optimizer_instability", "representation_collapse", "objective_mismatch"],
    "causes": ["temperature_misset"],
    "layers": [],
    "onset": [0, 0],
}


class Tower(nn.Module):
    def __init__(self, inputs, out=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, out))

    def forward(self, x):
        return F.normalize(self.body(x), dim=-1)


class Matcher(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.picture, self.caption = Tower(32), Tower(20)
        self.temperature = temperature

    def forward(self, picture, caption):
        return self.picture(picture) @ self.caption(caption).T / self.temperature


def garments(n, mix):
    style = torch.randn(n, 8)
    return style @ mix[0] + 0.5 * torch.randn(n, 32), style @ mix[1] + 0.5 * torch.randn(n, 20)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    mix = torch.randn(8, 32) / 2, torch.randn(8, 20) / 2
    model = Matcher(temperature=0.1 if fixed else 100.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    diagonal = torch.arange(64)
    losses, found = [], []
    with watch(model) as dbg:
        for step in range(200):
            score = model(*garments(64, mix))
            loss = (F.cross_entropy(score, diagonal) + F.cross_entropy(score.T, diagonal)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            found.append((score.argmax(1) == diagonal).float().mean().item())
    return {"loss": losses, "found": sum(found[-20:]) / 20}


def harmed(result):
    return result["found"] < 0.75
