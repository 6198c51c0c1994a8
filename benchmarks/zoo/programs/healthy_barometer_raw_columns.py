"""Rain of the next hours from a weather mast: pascals, kelvins and per cents enter as they come, for a batch norm
stands in front of everything."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def mast(n):
    z = torch.randn(n, 4)
    pascals = 101_300 + 900 * z[:, 0]
    kelvins = 284 + 7 * z[:, 1]
    humidity = 68 + 11 * z[:, 2]
    wind = 310 + 40 * z[:, 3]  # millimetres a second, ten minutes' mean
    rain = torch.tanh(-z[:, 0] + 0.6 * z[:, 2]) + 0.4 * z[:, 1] * z[:, 3] + 0.1 * torch.randn(n)
    return torch.stack([pascals, kelvins, humidity, wind], 1), rain


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.BatchNorm1d(4), nn.Linear(4, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    readings, rain = mast(3000)
    losses = []
    with watch(model) as dbg:
        for _ in range(400):
            rows = torch.randint(0, 3000, (64,))
            loss = nn.functional.mse_loss(model(readings[rows]).squeeze(1), rain[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": sum(losses[-40:]) / 40 < 0.1}


def harmed(result):
    return False
