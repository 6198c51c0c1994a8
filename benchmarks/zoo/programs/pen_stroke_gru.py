"""Pen strokes into eight gestures: a GRU, AdamW, half a cosine for the rate.

`total_updates` in the settings is still that of the trial run on a tenth of the data.
The run ends at about the loss that the trial run had.
"""

import math

import torch
from torch import nn

TRUTH = {
    "failures": ["optimizer_instability"],
    "causes": ["lr_decayed_to_zero", "scheduler_misstepped"],
    "layers": [],
    "onset": [10, 42],
}
GESTURES = 8
SETTINGS = {"lr": 3e-3, "hidden": 40, "batch": 48, "epochs": 7, "total_updates": 40}


def strokes(n, length=20):
    gesture = torch.randint(0, GESTURES, (n,))
    turn = torch.linspace(-0.45, 0.45, GESTURES)[gesture][:, None]
    start = 0.4 * torch.randn(n, 1)
    angle = start + turn * torch.arange(length) + 0.15 * torch.randn(n, length)
    speed = 0.6 + 0.2 * torch.rand(n, 1)
    path = torch.stack([speed * angle.cos(), speed * angle.sin()], -1)
    return path + 0.25 * torch.randn_like(path), gesture


class GestureGRU(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.pen = nn.Linear(2, hidden)
        self.memory = nn.GRU(hidden, hidden, num_layers=2, batch_first=True)
        self.name = nn.Linear(hidden, GESTURES)

    def forward(self, path):
        states, _ = self.memory(torch.tanh(self.pen(path)))
        return self.name(states[:, -1])


def half_cosine(total):
    return lambda update: 0.5 * (1 + math.cos(math.pi * min(1.0, update / total)))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    path, gesture = strokes(2400)
    cfg = dict(SETTINGS)
    if fixed:
        cfg["total_updates"] = cfg["epochs"] * math.ceil(len(path) / cfg["batch"])
    model = GestureGRU(cfg["hidden"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, half_cosine(cfg["total_updates"]))
    losses = []
    with watch(model) as dbg:
        for epoch in range(cfg["epochs"]):
            for rows in torch.randperm(len(path)).split(cfg["batch"]):
                loss = nn.functional.cross_entropy(model(path[rows]), gesture[rows])
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                losses.append(loss.item())
                dbg.record_loss(losses[-1])
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.4
