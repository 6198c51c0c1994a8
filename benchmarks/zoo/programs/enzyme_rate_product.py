"""Reaction rates as products of learned factors, in a loop class with hooks before and after an
update. With the clip hook installed the loss still blows up in the first dozens of updates."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "exploding_gradients", "optimizer_instability"],
    "causes": ["clip_after_step"],
    "layers": [],
    "onset": [0, 20],
}


class RateModel(nn.Module):
    """Product of several affine factors, times a scale."""

    def __init__(self, inputs=6, factors=5):
        super().__init__()
        self.factors = nn.ModuleList([nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in range(factors)])

    def forward(self, x):
        rate = torch.ones(len(x), 1)
        for factor in self.factors:
            rate = rate * (1 + 2 * factor(x))
        return rate


class Loop:
    def __init__(self, model, optimizer, hooks):
        self.model, self.optimizer, self.hooks = model, optimizer, hooks

    def call(self, event):
        if event in self.hooks:
            self.hooks[event]()

    def update(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.call("before_update")
        self.optimizer.step()
        self.call("after_update")
        return loss


def assays(n):
    x = torch.randn(n, 6)
    y = (1 + 0.5 * x[:, 0].tanh()) * (1 - 0.6 * x[:, 1].tanh()) * (1 + 0.6 * (x[:, 2] * x[:, 3]).tanh())
    return x, y[:, None]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = assays(2000)
    model = RateModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)

    def limit():
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        nn.utils.clip_grad_norm_(model.parameters(), 0.3)

    loop = Loop(model, optimizer, {"before_update" if fixed else "after_update": limit})
    losses = []
    with watch(model) as dbg:
        for step in range(450):
            rows = torch.randint(0, 2000, (50,))
            loss = loop.update(x[rows], y[rows])
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.3
