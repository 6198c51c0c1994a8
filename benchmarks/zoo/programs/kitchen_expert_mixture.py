"""Cooking times from four experts and a gate. The gate's weights per dish are near zero on large
batches, and the error depends on who shares the batch."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["softmax_wrong_dim"],
    "layers": ["gate"],
    "onset": [0, 0],
}


class Gate(nn.Module):
    def __init__(self, inputs, experts, axis):
        super().__init__()
        self.score = nn.Linear(inputs, experts)
        self.axis = axis

    def forward(self, x):
        return F.softmax(self.score(x), dim=self.axis)


class Kitchen(nn.Module):
    def __init__(self, axis, inputs=8, experts=4):
        super().__init__()
        self.gate = Gate(inputs, experts, axis)
        self.experts = nn.ModuleList(nn.Linear(inputs, 1) for _ in range(experts))

    def forward(self, dish):
        minutes = torch.cat([expert(dish) for expert in self.experts], 1)
        return (self.gate(dish) * minutes).sum(1)


def dishes(n, recipes):
    x = torch.randn(n, 8)
    cuisine = (x[:, :2] > 0).long() @ torch.tensor([2, 1])
    return x, (x * recipes[cuisine]).sum(1) + cuisine.float() - 1.5


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    recipes = torch.randn(4, 8)
    kitchen = Kitchen(axis=1 if fixed else 0)
    optimizer = torch.optim.Adam(kitchen.parameters(), lr=5e-2)
    losses = []
    with watch(kitchen) as dbg:
        for step in range(400):
            dish, minutes = dishes(128, recipes)
            loss = F.mse_loss(kitchen(dish), minutes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            dbg.record_loss(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 3.0
