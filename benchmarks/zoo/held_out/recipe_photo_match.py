"""Matches recipes with photos by a contrastive loss that the user wrote out from the paper, with
a temperature that sharpens over the run. Near its end the loss is suddenly NaN."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Contrastive"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["exp_overflow"],
    "layers": [],
    "onset": [220, 250],
}


class Tower(nn.Module):
    def __init__(self, inputs, width=96, out=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, out))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.recipe = Tower(30)
        self.photo = Tower(50)


class Kitchen:
    def __init__(self, dish=12):
        self.words, self.pixels = torch.randn(dish, 30), torch.randn(dish, 50)

    def pairs(self, n):
        dish = torch.randn(n, len(self.words))
        words = torch.tanh(dish @ self.words / 3) + 0.05 * torch.randn(n, 30)
        pixels = torch.tanh(dish @ self.pixels / 3) + 0.05 * torch.randn(n, 50)
        return words, pixels


def info_nce(a, b, temperature):
    weight = torch.exp(a @ b.T / temperature)
    return (weight.sum(1).log() - weight.diagonal().log()).mean()


def info_nce_stable(a, b, temperature):
    return F.cross_entropy(a @ b.T / temperature, torch.arange(len(a)))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    kitchen, model = Kitchen(), Matcher()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 320, eta_min=1e-4)
    criterion = info_nce_stable if fixed else info_nce
    losses = []
    with watch(model) as dbg:
        for step in range(320):
            temperature = 0.06 * 6 ** -min(1.0, step / 240)
            words, pixels = kitchen.pairs(48)
            loss = criterion(model.recipe(words), model.photo(pixels), temperature)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            decay.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 2.0
