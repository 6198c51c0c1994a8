"""Angle of a driven pendulum in radians, up to two turns either way, from four readings. Predicted
angles never leave a narrow band and the error is large for every fast swing."""
import torch
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch", "saturated_activations", "optimizer_instability"],
    "causes": ["output_range_mismatch"],
    "layers": ["5", "4"],
    "onset": [0, 60],
}


def readings(n):
    angle = 10 * torch.rand(n, 1) - 5
    speed = torch.randn(n, 1)
    r = torch.cat([angle.sin() + 0.3 * angle, angle.cos(), speed, angle * 0.2 + 0.1 * speed], 1)
    return r + 0.02 * torch.randn(n, 4), angle


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    reading, angle = readings(2000)
    layers = [nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1), nn.Tanh()]
    model = nn.Sequential(*(layers[:-1] if fixed else layers))
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses = []
    with watch(model) as dbg:
        for epoch in range(8):
            for rows in torch.randperm(2000).split(50):
                optimizer.zero_grad()
                loss = nn.functional.l1_loss(model(reading[rows]), angle[rows])
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                dbg.record_loss(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.5
