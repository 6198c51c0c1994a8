"""Vibration windows streamed shard by shard to a small 1-D CNN that predicts wear.

Shards of the second site are in millivolts and with an offset; nobody converted them. The loss leaps and stays up.
"""
import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability"],
    "causes": ["input_distribution_shift"],
    "layers": [],
    "onset": [180, 180],
}
PER_SHARD, BATCH = 30, 32


class WearNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, 16, 9, stride=2), nn.ReLU(), nn.Conv1d(16, 24, 5, stride=2), nn.ReLU()
        )
        self.regress = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, window):
        return self.regress(self.features(window).mean(-1)).squeeze(-1)


def windows(n):
    t = torch.arange(64) / 64
    wear = torch.rand(n)
    f = 4 + 8 * wear
    phase = 6.283 * torch.rand(n, 1)
    wave = torch.sin(6.283 * f[:, None] * t + phase) + 0.2 * torch.randn(n, 64)
    return wave[:, None] * 1.2, 4 * (wear - 0.5)


def shards(converted):
    for number in range(10):
        for _ in range(PER_SHARD):
            x, y = windows(BATCH)
            if number >= 6 and not converted:
                x = 6 * x + 9
            yield x, y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = WearNet()
    optim = torch.optim.Adam(net.parameters(), lr=2e-3)
    losses = []
    with watch(net) as dbg:
        for x, y in shards(converted=fixed):
            optim.zero_grad()
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            optim.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    with torch.no_grad():
        x, y = windows(400)
        site_one = nn.functional.mse_loss(net(x), y).item()
    return {"loss": losses, "site_one": site_one}


def harmed(result):
    return result["site_one"] > 0.4
