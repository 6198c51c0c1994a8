"""Prices of flats in crowns (millions) from standardised features, with the optimizer and rate of a tutorial.

The loss has fourteen digits at the start and thirteen after the run.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients", "objective_mismatch"],
    "causes": ["unnormalized_target"],
    "layers": [],
    "onset": [0, 0],
}


def flats(n):
    area, rooms = torch.randn(n), torch.randn(n)
    floor, age, tram = torch.randn(3, n)
    price = 4.8e6 + 1.4e6 * area + 3e5 * rooms * area - 6e5 * tram.abs() + 2.5e5 * torch.sin(2 * age) + 1e5 * floor
    return torch.stack([area, rooms, floor, age, tram], 1), price[:, None]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    features, price = flats(3000)
    centre, scale = price.mean(), price.std()
    target = (price - centre) / scale if fixed else price
    loader = DataLoader(TensorDataset(features, target), batch_size=60, shuffle=True)
    model = nn.Sequential(nn.Linear(5, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LeakyReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for epoch in range(8):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    with torch.no_grad():
        guess = model(features) * (scale if fixed else 1.0) + (centre if fixed else 0.0)
    return {"loss": losses, "relative_error": ((guess - price).pow(2).mean().sqrt() / scale).item()}


def harmed(result):
    return not result["relative_error"] < 0.5
