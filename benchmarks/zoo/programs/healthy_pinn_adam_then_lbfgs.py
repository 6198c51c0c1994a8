"""A physics-informed net solves u'' = -u with boundary values, first with Adam, then a second-order optimizer takes
over at step 800. Tanh layers, terms of very different size, second derivatives in the loss."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def residual(net, t):
    t = t.requires_grad_(True)
    u = net(t)
    (du,) = torch.autograd.grad(u.sum(), t, create_graph=True)
    (ddu,) = torch.autograd.grad(du.sum(), t, create_graph=True)
    return ddu + u, u, du


def objective(net, t):
    r, _, _ = residual(net, t)
    _, u0, du0 = residual(net, torch.zeros(1, 1))
    return r.square().mean() + 20 * (u0 - 0.0).square().mean() + 20 * (du0 - 1.0).square().mean()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
    grid = torch.linspace(0, 4, 48)[:, None]
    losses = []
    with watch(net) as dbg:
        adam = torch.optim.Adam(net.parameters(), lr=3e-3)
        for _ in range(800):
            loss = objective(net, 4 * torch.rand(48, 1))
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
        newton = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=5, history_size=20, line_search_fn="strong_wolfe")

        def closure():
            newton.zero_grad()
            value = objective(net, grid.clone())
            value.backward()
            return value

        for _ in range(40):
            loss = newton.step(closure)
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    with torch.no_grad():
        error = (net(grid) - torch.sin(grid)).abs().max().item()
    return {"loss": losses, "max_error": error, "learned": error < 0.05}


def harmed(result):
    return False
