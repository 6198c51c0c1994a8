"""Nodules in ultrasound patches, two answers per patch. The loss levels off early and the
screening afterwards calls every patch suspicious."""

import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["sigmoid_before_logits_loss"],
    "layers": [],
    "onset": [0, 0],
}


def patches(n):
    present = (torch.rand(n, 2) < torch.tensor([0.3, 0.2])).float()
    x = 0.7 * torch.randn(n, 1, 20, 20)
    for i in range(n):
        row, col = torch.randint(2, 14, (2,)).tolist()
        if present[i, 0]:
            x[i, 0, row : row + 4, col : col + 4] += 1.5
        row, col = torch.randint(2, 14, (2,)).tolist()
        if present[i, 1]:
            x[i, 0, row : row + 4, col] -= 2.5
            x[i, 0, row, col : col + 4] -= 2.5
    return x, present


class NoduleNet(nn.Module):
    def __init__(self, probabilities):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 5, padding=2)
        self.conv2 = nn.Conv2d(12, 24, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.relu = nn.ReLU()
        self.findings = nn.Linear(24, 2)
        self.last = nn.Sigmoid() if probabilities else nn.Identity()

    def forward(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.relu(self.conv2(x)).amax((2, 3))
        return self.last(self.findings(x))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = patches(900)
    model = NoduleNet(probabilities=not fixed)
    loss_fn = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(15):
            order = torch.randperm(700)
            for start in range(0, 700, 35):
                rows = order[start : start + 35]
                loss = loss_fn(model(x[rows]), y[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    with torch.no_grad():
        called = torch.sigmoid(model(x[700:])) > 0.5
    return {"loss": losses, "accuracy": (called == y[700:].bool()).float().mean().item()}


def harmed(result):
    return result["accuracy"] < 0.8
