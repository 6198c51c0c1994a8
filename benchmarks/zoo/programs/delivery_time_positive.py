"""Delivery duration in minutes; the head ends in a softplus that I wrote myself, guarded with torch.where for large
values. Trains well for a while, then every weight is NaN from one step to the next; the loss before is normal."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["masked_nan_gradient", "exp_overflow"],
    "layers": ["positive"],
    "onset": [34, 35],
}


class Softplus(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed

    def forward(self, x):
        if self.fixed:
            return torch.where(x > 20, x, torch.log(1 + torch.exp(x.clamp(max=20))))
        return torch.where(x > 20, x, torch.log(1 + torch.exp(x)))


class Duration(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.a = nn.Linear(6, 64)
        self.b = nn.Linear(64, 64)
        self.c = nn.Linear(64, 1)
        self.positive = Softplus(fixed)
        nn.init.constant_(self.c.bias, 5.0)

    def forward(self, x):
        x = torch.relu(self.a(x))
        x = torch.relu(self.b(x))
        return self.positive(self.c(x)).squeeze(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    w = torch.randn(6) * 8
    x = torch.randn(4000, 6)
    minutes = (38 + x @ w + 9 * x[:, 0].abs() * x[:, 1]).clamp(min=4) + 2 * torch.rand(4000)
    model = Duration(fixed)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for epoch in range(5):
            for rows in torch.randperm(4000).split(50):
                loss = nn.functional.l1_loss(model(x[rows]), minutes[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses, "first_nan": next((float(i) for i, v in enumerate(losses) if v != v), -1.0)}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 5
