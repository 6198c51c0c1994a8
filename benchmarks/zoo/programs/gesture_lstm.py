"""Gestures from a wrist sensor: (batch, time, channels) windows into a two-layer LSTM, last output to a class.

Accuracy on test never leaves chance level, training loss goes down very little.
"""
import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["objective_mismatch", "data_anomaly"],
    "causes": ["axis_order_error"],
    "layers": ["lstm"],
    "onset": [0, 0],
}


class GestureNet(nn.Module):
    def __init__(self, channels=6, hidden=32, classes=4, **kw):
        super().__init__()
        self.lstm = nn.LSTM(channels, hidden, num_layers=2, **kw)
        self.bn = nn.BatchNorm1d(hidden)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(self.bn(out[:, -1, :]))


def windows(n, length=20):
    y = torch.randint(0, 4, (n,))
    t = torch.linspace(0, 1, length)
    speed = torch.tensor([1.0, 2.0, 1.0, 2.0])[y]
    sign = torch.tensor([1.0, 1.0, -1.0, -1.0])[y]
    wave = sign[:, None] * torch.sin(2 * torch.pi * speed[:, None] * t)
    x = 0.5 * torch.randn(n, length, 6)
    x[:, :, :3] += wave[:, :, None]
    return x, y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = windows(1280)
    net = GestureNet(batch_first=True) if fixed else GestureNet()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3, weight_decay=1e-5)
    losses = []
    with watch(net) as dbg:
        for epoch in range(8):
            net.train()
            for rows in torch.randperm(1280).split(32):
                loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 5.0)
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    net.eval()
    x, y = windows(320)
    with torch.no_grad():
        acc = sum((net(a).argmax(1) == b).sum().item() for a, b in zip(x.split(32), y.split(32))) / 320
    return {"loss": losses, "acc": acc}


def harmed(result):
    return result["acc"] < 0.7
