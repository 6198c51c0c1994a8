"""Walking speed from three accelerometer axes. After 600 updates the effective batch is made eight times
larger to polish the fit; instead the error explodes."""
import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["accumulation_unscaled"],
    "layers": [],
    "onset": [600, 600],
}


def walks(n):
    speed = 0.5 + 1.5 * torch.rand(n)
    t = torch.arange(32.0) / 8
    base = torch.sin(2 * torch.pi * speed[:, None] * t + 6.28 * torch.rand(n, 1))
    x = torch.stack([base, base.roll(3, 1) * speed[:, None], 0.3 * base], 1) + 0.3 * torch.randn(n, 3, 32)
    return x, (speed - 1.25) / 0.433


class SpeedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(3, 16, 5, padding=2)
        self.conv2 = nn.Conv1d(16, 16, 5, padding=2)
        self.fc = nn.Linear(32, 1)

    def forward(self, x):
        h = torch.relu(self.conv1(x))
        h = torch.relu(self.conv2(h))
        return self.fc(torch.cat([h.mean(2), h.amax(2)], 1)).squeeze(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = walks(4000)
    model = SpeedNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.04, momentum=0.9)
    losses = []
    with watch(model) as dbg:
        for update in range(1000):
            micro = 1 if update < 600 else 8
            opt.zero_grad()
            total = 0.0
            for _ in range(micro):
                i = torch.randint(len(x), (16,))
                loss = nn.functional.mse_loss(model(x[i]), y[i])
                (loss / micro if fixed else loss).backward()
                total += loss.item() / micro
            opt.step()
            losses.append(total)
            dbg.record_loss(total)
    vx, vy = walks(500)
    with torch.no_grad():
        err = nn.functional.mse_loss(model(vx), vy).item()
    return {"loss": losses, "val": err}


def harmed(result):
    return not result["val"] < 0.6
