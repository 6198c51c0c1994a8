"""Altitude of a drone from pressure sequences; the squared error is written by hand. The user sees
the mean altitude for all flights and suspects the sensor."""
import torch
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["loss_shape_broadcast"],
    "layers": [],
    "onset": [0, 0],
}


def flights(n, length=16):
    climb = torch.randn(n, 1).cumsum(1)
    path = climb + 0.6 * torch.randn(n, length).cumsum(1)
    pressure = -path + 0.1 * torch.randn(n, length)
    return pressure.unsqueeze(1), path[:, -4:].mean(1, keepdim=True)


net = lambda: nn.Sequential(
    nn.Conv1d(1, 16, 4, stride=2), nn.Tanh(), nn.Conv1d(16, 16, 3), nn.Tanh(), nn.Flatten(), nn.Linear(80, 1), nn.Flatten(0)
)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    pressure, altitude = flights(2048)
    if fixed:
        altitude = altitude[:, 0]
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    errors = []
    with watch(model) as dbg:
        for step in range(300):
            rows = torch.randint(0, 2048, (64,))
            difference = model(pressure[rows]) - altitude[rows]
            loss = (difference**2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            errors.append(loss.item())
    return {"loss": errors, "variance": altitude.var().item()}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.3 * result["variance"]
