"""Curve fit of a damped pendulum with L-BFGS and strong Wolfe line search; the loss falls by six orders in 60 steps."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Swing(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, t):
        return self.net(t)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    t = torch.linspace(-1, 1, 200)[:, None]
    y = torch.exp(-1.5 * (t + 1)) * torch.cos(9 * t)
    model = Swing()
    opt = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=20, history_size=50, line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad()
        loss = (model(t) - y).pow(2).mean()
        loss.backward()
        return loss

    losses = []
    with watch(model) as dbg:
        for _ in range(60):
            loss = opt.step(closure)
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": losses[-1] < 1e-4}


def harmed(result):
    return False
