"""Hand positions from forearm muscle signals, recorded in one go; at lunch somebody turned up the amplifier.

The loss jumps and takes long to come down; the finished model is useless on the signals of the morning.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability"],
    "causes": ["input_distribution_shift"],
    "layers": [],
    "onset": [180, 180],
}
CHANNELS, WINDOW, BATCH = 6, 32, 25


class HandNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.spatial = nn.Conv1d(CHANNELS, width, 1)
        self.temporal = nn.Conv1d(width, width, 5, groups=width, padding=2)
        self.pool = nn.AdaptiveAvgPool1d(4)
        self.joints = nn.Linear(width * 4, 3)

    def forward(self, signal):
        h = torch.tanh(self.spatial(signal))
        h = torch.tanh(self.temporal(h)) ** 2
        return self.joints(self.pool(h).flatten(1))


def session(windows):
    position = torch.randn(windows, 3)
    mixing = torch.randn(3, CHANNELS) / 1.7
    strength = F.softplus(position @ mixing)
    signal = strength[:, :, None] * torch.randn(windows, CHANNELS, WINDOW)
    return signal, position


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    signal, position = session(BATCH * 300)
    noon = BATCH * 180
    morning = signal[:noon].std()
    signal[noon:] = 9 * signal[noon:] + 6
    if fixed:
        signal[noon:] = (signal[noon:] - 6) / 9
    signal = signal / morning
    loader = DataLoader(Subset(TensorDataset(signal, position), range(len(signal))), batch_size=BATCH)
    net = HandNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=1e-3)
    losses = []
    with watch(net) as dbg:
        for window, target in loader:
            loss = F.mse_loss(net(window), target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            losses.append(loss.item())
    with torch.no_grad():
        error = F.mse_loss(net(signal[:noon]), position[:noon]).item()
    return {"loss": losses, "morning_error": error}


def harmed(result):
    return not result["morning_error"] < 0.3
