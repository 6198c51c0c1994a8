"""Defects of bottle caps by a small residual network with Adam at a rate of 0.02 and no other care."""
import torch
from torch import nn

TRUTH = {"failures": ["optimizer_instability", "exploding_gradients", "dead_neurons"], "causes": ["lr_too_high"], "layers": [], "onset": [0, 10]}


class Step(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.two(torch.relu(self.one(x))))


class Caps(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Conv2d(1, 16, 3, padding=1)
        self.steps = nn.Sequential(*[Step(16) for _ in range(4)])
        self.defect = nn.Linear(16, 5)

    def forward(self, x):
        return self.defect(self.steps(torch.relu(self.enter(x))).mean((2, 3)))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    kind = torch.randint(0, 5, (600,))
    a = torch.arange(12.0)
    cap = torch.sin(a[:, None] * (0.5 + 0.5 * kind[:, None, None]) + 0.3 * a) + 0.5 * torch.randn(600, 12, 12)
    model = Caps()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 if fixed else 0.2)
    losses = []
    with watch(model) as dbg:
        for _ in range(200):
            rows = torch.randint(0, 600, (32,))
            loss = nn.functional.cross_entropy(model(cap[rows, None]), kind[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 1.2
