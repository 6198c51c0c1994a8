"""A smooth lens profile fitted with L-BFGS: one closure per step, all points at once, strong Wolfe line search."""

import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Profile(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.inner = nn.Linear(2, width)
        self.middle = nn.Linear(width, width)
        self.outer = nn.Linear(width, 1)

    def forward(self, xy):
        return self.outer(torch.tanh(self.middle(torch.tanh(self.inner(xy)))))


def lens(n):
    xy = 2 * torch.rand(n, 2) - 1
    height = torch.exp(-2 * xy.square().sum(1)) * torch.cos(3 * xy[:, 0]) + 0.2 * xy[:, 1]
    return xy, height[:, None] + 0.01 * torch.randn(n, 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    xy, height = lens(400)
    model = Profile()
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=1.0, max_iter=4, history_size=10, line_search_fn="strong_wolfe"
    )
    losses = []
    with watch(model) as dbg:

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(xy), height)
            loss.backward()
            return loss

        for _ in range(150):
            loss = optimizer.step(closure)
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": losses[-1] < 0.02 * losses[0]}


def harmed(result):
    return False
