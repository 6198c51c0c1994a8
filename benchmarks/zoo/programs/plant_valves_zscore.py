"""Anomaly scores for a plant: an autoencoder over z-scored sensor columns, one valve of which never moved.

nan from the first line of the log.
"""
import torch
from torch import nn

ARCHITECTURE = "VAE / autoencoder"
TRUTH = {
    "failures": ["data_anomaly", "numerical_error"],
    "causes": ["zero_variance_feature", "nan_in_input"],
    "layers": [],
    "onset": [0, 0],
}


class ZScore:
    def fit(self, table):
        self.mean = table.mean(0)
        self.scale = table.std(0)
        return self

    def __call__(self, table):
        return (table - self.mean) / self.scale


class PlantAE(nn.Module):
    def __init__(self, columns, code=5):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(columns, 32), nn.Mish(), nn.Linear(32, code))
        self.dec = nn.Sequential(nn.Linear(code, 32), nn.Mish(), nn.Linear(32, columns))

    def forward(self, x):
        code = self.enc(x)
        return self.dec(code), code


def sensors(n):
    drivers = torch.randn(n, 4)
    mix = torch.randn(4, 15)
    rows = torch.tanh(drivers @ mix) * torch.logspace(-1, 2, 15) + 0.02 * torch.randn(n, 15)
    rows[:, 9] = 1.0
    return rows


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rows = sensors(2048)
    if fixed:
        rows = rows[:, [c for c in range(rows.shape[1]) if rows[:, c].std() > 0]]
    rows = ZScore().fit(rows)(rows)
    model = PlantAE(rows.shape[1])
    opt = torch.optim.NAdam(model.parameters(), lr=3e-3)
    curve = []
    with watch(model) as dbg:
        for epoch in range(8):
            for part in rows[torch.randperm(len(rows))].split(64):
                rebuilt, code = model(part)
                loss = (rebuilt - part).pow(2).mean() + 1e-4 * code.pow(2).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                curve.append(loss.item())
                dbg.record_loss(curve[-1])
    return {"loss": curve}


def harmed(result):
    return not result["loss"][-1] < 0.5
