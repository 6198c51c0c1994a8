"""Direction of bee dances from tracked points. Warm-up and decay are written in epochs in the
settings; the training log shows improvement in the first minute only."""
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["scheduler_misstepped", "lr_decayed_to_zero"],
    "layers": [],
    "onset": [0, 30],
}
SETTINGS = {"epochs": 10, "warm_epochs": 2, "decay": 0.6, "lr": 4e-3, "batch": 50}


def by_epoch(epoch):
    if epoch < SETTINGS["warm_epochs"]:
        return (epoch + 1) / (SETTINGS["warm_epochs"] + 1)
    return SETTINGS["decay"] ** (epoch - SETTINGS["warm_epochs"])


def dances(n, points=12):
    angle = 2 * math.pi * torch.rand(n, 1)
    walk = torch.linspace(0, 1, points)
    wag = 0.4 * torch.sin(20 * walk + 6.28 * torch.rand(n, 1))
    x = walk * angle.cos() - wag * angle.sin()
    y = walk * angle.sin() + wag * angle.cos()
    path = torch.stack([x, y], 2) + 0.1 * torch.randn(n, points, 2) + torch.randn(n, 1, 2)
    return path, torch.cat([angle.cos(), angle.sin()], 1)


class DanceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.LSTM(2, 40, batch_first=True)
        self.compass = nn.Linear(40, 2)

    def forward(self, path):
        return self.compass(self.steps(path)[0][:, -1])


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*dances(1500)), batch_size=SETTINGS["batch"], shuffle=True)
    net = DanceNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=SETTINGS["lr"])
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, by_epoch)
    losses = []
    with watch(net) as dbg:
        for epoch in range(SETTINGS["epochs"]):
            for path, direction in loader:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(net(path), direction)
                loss.backward()
                optimizer.step()
                if not fixed:
                    scheduler.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            if fixed:
                scheduler.step()
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.1
