"""Which of four workshops made a window, from 16 x 16 grey scans stored as bytes and scaled to 0..1."""
import torch
from torch import nn

TRUTH = {"failures": ["data_anomaly"], "causes": ["constant_input"], "layers": [], "onset": [0, 0]}


class Glass(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 12, 3, 2, 1), nn.Conv2d(12, 24, 3, 2, 1)
        self.name = nn.Linear(24 * 16, 4)

    def forward(self, scan):
        h = torch.relu(self.second(torch.relu(self.first(scan))))
        return self.name(h.flatten(1))


def scans(n):
    kind = torch.randint(0, 4, (n,))
    grid = torch.arange(16.0)
    wave = torch.sin(grid[None, :, None] * (0.4 + 0.35 * kind[:, None, None]) + 0.2 * grid[None, None, :])
    grey = (120 + 60 * wave + 25 * torch.randn(n, 16, 16)).clamp(0, 255)
    return grey.to(torch.uint8)[:, None], kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    scan, kind = scans(800)
    model = Glass()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(250):
            rows = torch.randint(0, 800, (40,))
            batch = scan[rows].float() / 255 if fixed else (scan[rows] // 255).float()
            loss = nn.functional.cross_entropy(model(batch), kind[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.9
