"""Water depth from sonar echoes, in tens of metres; the head ends in a sigmoid as in the detector it was copied from.

Shallow water is fine; everything deep is reported as one and the error does not go below a constant.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

TRUTH = {
    "failures": ["objective_mismatch", "saturated_activations", "optimizer_instability"],
    "causes": ["output_range_mismatch"],
    "layers": ["head", "head.3", "head.2"],
    "onset": [0, 0],
}


class SonarNet(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.echo = nn.Sequential(
            nn.Conv1d(1, 12, 7, stride=2), nn.BatchNorm1d(12), nn.ReLU(), nn.Conv1d(12, 16, 5, stride=2), nn.ReLU()
        )
        self.head = nn.Sequential(nn.Linear(16 * 12, 32), nn.ReLU(), nn.Linear(32, 1), last)

    def forward(self, ping):
        return self.head(self.echo(ping).flatten(1))


def pings(n, length=60):
    depth = 0.2 + 4.5 * torch.rand(n, 1)
    t = torch.arange(float(length))
    echo = torch.exp(-((t - 6 - 10 * depth) ** 2) / 8) * 3
    return (echo + 0.3 * torch.randn(n, length))[:, None], depth


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    training, held = random_split(TensorDataset(*pings(1800)), [1600, 200])
    loader = DataLoader(training, batch_size=40, shuffle=True)
    model = SonarNet(nn.Identity() if fixed else nn.Sigmoid())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses, validation = [], []
    with watch(model) as dbg:
        for epoch in range(8):
            model.train()
            for ping, depth in loader:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(ping), depth)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            model.eval()
            with torch.no_grad():
                ping, depth = held[:]
                validation.append(nn.functional.mse_loss(model(ping), depth).item())
    return {"loss": losses, "validation": validation}


def harmed(result):
    return result["validation"][-1] > 0.5
