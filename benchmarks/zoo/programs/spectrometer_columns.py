"""Concentration from spectrometer channels, columns standardised with the statistics of the training part.

The first loss is nan already. It began with the new instrument, which has more channels.
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["data_anomaly", "numerical_error"],
    "causes": ["zero_variance_feature", "nan_in_input"],
    "layers": [],
    "onset": [0, 0],
}


def spectra(rng, n):
    conc = rng.uniform(0, 1, (n, 1))
    channel = np.arange(32)
    peak = np.exp(-((channel - 12) ** 2) / 8) + 0.5 * np.exp(-((channel - 22) ** 2) / 4)
    x = conc * peak + 0.05 * rng.standard_normal((n, 32)) + 0.2
    x[:, 29] = 0.0
    return x, conc[:, 0]


def standardise(train_part, x, tidy):
    mean, std = train_part.mean(0), train_part.std(0)
    if tidy:
        std = np.where(std < 1e-8, 1.0, std)
    with np.errstate(all="ignore"):
        return (x - mean) / std


def train(watch, fixed=False, seed=0):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    x, conc = spectra(rng, 1200)
    x = standardise(x[:1000], x, tidy=fixed)
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(conc, dtype=torch.float32)
    loader = DataLoader(TensorDataset(x[:1000], y[:1000]), batch_size=50, shuffle=True)
    net = nn.Sequential(
        nn.Unflatten(1, (1, 32)), nn.Conv1d(1, 8, 5, padding=2), nn.BatchNorm1d(8), nn.LeakyReLU(),
        nn.MaxPool1d(2), nn.Flatten(), nn.Linear(128, 32), nn.LeakyReLU(), nn.Linear(32, 1), nn.Flatten(0),
    )
    opt = torch.optim.Adagrad(net.parameters(), lr=0.02)
    losses = []
    with watch(net) as dbg:
        for epoch in range(6):
            for xb, yb in loader:
                loss = nn.functional.l1_loss(net(xb), yb)
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    net.eval()
    with torch.no_grad():
        mae = (net(x[1000:]) - y[1000:]).abs().mean().item()
    return {"loss": losses, "mae": mae}


def harmed(result):
    return not result["mae"] < 0.1
