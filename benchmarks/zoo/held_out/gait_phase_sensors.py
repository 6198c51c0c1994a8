"""Tells four gaits apart by two seconds of a hip sensor. It does a bit better than chance in
training, and depends on which walkers share the batch."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["objective_mismatch", "data_anomaly"],
    "causes": ["axis_order_error"],
    "layers": ["recurrent"],
    "onset": [0, 0],
}


class GaitNet(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.recurrent = nn.GRU(3, 32, batch_first=batch_first)
        self.norm = nn.LayerNorm(32)
        self.gait = nn.Linear(32, 4)

    def forward(self, walk):
        steps, _ = self.recurrent(walk)
        return self.gait(self.norm(steps[:, -1]))


def walkers(n):
    gait = torch.randint(0, 4, (n,))
    pace = torch.tensor([1.0, 1.6, 2.4, 3.4])[gait] * (1 + 0.08 * torch.randn(n))
    phase = 6.28 * torch.rand(n, 1)
    time = torch.arange(30) / 10
    swing = torch.sin(pace[:, None] * time * 2 + phase)
    tilt = torch.cos(pace[:, None] * time * 2 + phase) * 0.8
    jolt = 0.6 * torch.sin(2 * pace[:, None] * time * 2 + phase)
    walk = torch.stack([swing, tilt, jolt], -1)
    return 1.3 * walk + 0.25 * torch.randn_like(walk), gait


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    walk, gait = walkers(1000)
    model = GaitNet(batch_first=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(300):
            rows = torch.randint(0, 800, (40,))
            loss = F.cross_entropy(model(walk[rows]), gait[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        guess = torch.cat([model(w).argmax(1) for w in walk[800:].split(40)])
    return {"loss": losses, "accuracy": (guess == gait[800:]).float().mean().item()}


def harmed(result):
    return result["accuracy"] < 0.8
