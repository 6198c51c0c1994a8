"""River level from weather of the last days, data exported from a gauge database.

A huge spike of the loss in one iteration, and the predictions are off for the rest of the run.
"""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability"],
    "causes": ["target_outlier"],
    "layers": [],
    "onset": [61, 61],
}


class GaugeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 16, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)
        self.rnn = nn.GRU(16, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, weather):
        h = F.silu(self.norm(self.conv(weather.transpose(1, 2)))).transpose(1, 2)
        return self.out(self.rnn(h)[0][:, -1])[:, 0]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    weather = torch.randn(2560, 12, 4)
    decay = 0.75 ** torch.arange(11, -1, -1.0)
    level = (weather[:, :, 0] * decay).sum(1) / 1.5 + 0.3 * weather[:, -1, 1]
    level[1965:1975] = -9999.0
    net = GaugeNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    losses, clean = [], []
    with watch(net) as dbg:
        for s in range(0, 2560 * 2, 32):
            rows = torch.arange(s, s + 32) % 2560
            pred = net(weather[rows])
            good = level[rows] > -999
            keep = good if fixed else torch.ones(32, dtype=torch.bool)
            loss = F.mse_loss(pred[keep], level[rows][keep])
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            clean.append(F.mse_loss(pred[good], level[rows][good]).item())
            if s // 32 == 120:
                break
    return {"loss": losses, "after": sum(clean[-20:]) / 20}


def harmed(result):
    return not result["after"] < 0.6
