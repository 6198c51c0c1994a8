"""Pipe lengths under float16 autocast with a gradient scaler. One stage multiplies by the air pressure in
pascals; the scaler halves and halves, and nothing is ever learned."""
import torch
from torch import nn

TRUTH = {"failures": ["numerical_error", "training_wiring"], "causes": ["loss_scale_collapse", "half_precision_overflow"], "layers": [], "onset": [0, 40]}


class Pipes(nn.Module):
    def __init__(self, pressure):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(8, 48), nn.Linear(48, 48), nn.Linear(48, 1)
        self.pressure = pressure
        self.gain = 1.0 if pressure == 1 else 6e5

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.float16):
            h = torch.relu(self.one(x))
            h = torch.relu(self.two(h)) * self.gain
            y = self.three(h)
        return y.float() * self.pressure


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(700, 8)
    length = (x[:, :1] + x[:, 1:2] * x[:, 2:3]) * 0.5
    pressure = 1.0 if fixed else 101325.0
    model = Pipes(pressure)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    losses = []
    with watch(model) as dbg:
        for _ in range(200):
            rows = torch.randint(0, 700, (32,))
            loss = nn.functional.mse_loss(model(x[rows]), length[rows] * pressure)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            dbg.record_loss(loss.item())
            losses.append(loss.item() / pressure**2)
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.15
