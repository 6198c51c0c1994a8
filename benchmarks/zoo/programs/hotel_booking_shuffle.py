"""Cancelled hotel bookings. Every epoch the table is shuffled before it is cut into batches. The loss
settles at the entropy of the cancellation rate in all experiments, with any network."""
import torch
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["labels_unrelated_to_inputs"],
    "layers": [],
    "onset": [0, 0],
}


def bookings(n):
    x = torch.randn(n, 12)
    score = 1.5 * x[:, 0] - x[:, 1] + x[:, 2] * x[:, 3]
    return x, (score + 0.3 * torch.randn(n) > 0).float()


def shuffled(*columns, together):
    if together:
        order = torch.randperm(len(columns[0]))
        return [c[order] for c in columns]
    return [c[torch.randperm(len(c))] for c in columns]


class BookingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 1))

    def forward(self, x):
        return self.main(x).view(-1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, cancelled = bookings(2560)
    net = BookingNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    criterion = nn.BCEWithLogitsLoss()
    losses = []
    with watch(net) as dbg:
        for epoch in range(10):
            xs, ys = shuffled(x, cancelled, together=fixed)
            for i in range(0, 2560, 64):
                optimizer.zero_grad()
                loss = criterion(net(xs[i : i + 64]), ys[i : i + 64])
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-40:]) / 40 > 0.5
