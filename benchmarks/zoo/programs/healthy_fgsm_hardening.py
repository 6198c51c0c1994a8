"""Adversarial hardening: clean training for 500 steps, then every batch is attacked with a signed-gradient step. The
training loss doubles and stays up; the attacked accuracy is what rises."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def attack(net, x, y, size):
    x = x.detach().requires_grad_(True)
    (g,) = torch.autograd.grad(F.cross_entropy(net(x), y), x)
    return (x + size * g.sign()).detach()


def signals(n, shapes):
    y = torch.randint(len(shapes), (n,))
    return shapes[y] + 0.7 * torch.randn(n, shapes.shape[1]), y


def attacked_accuracy(net, shapes):
    x, y = signals(1000, shapes)
    return (net(attack(net, x, y, 0.35)).argmax(1) == y).float().mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    shapes = torch.randn(5, 24)
    shapes[:, 12:] *= 0.4
    net = nn.Sequential(nn.Linear(24, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 5))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.02)
    losses, robust = [], []
    with watch(net) as dbg:
        for step in range(1300):
            x, y = signals(64, shapes)
            if step >= 500:
                x = attack(net, x, y, 0.35)
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
            if step in (499, 1299):
                robust.append(attacked_accuracy(net, shapes))
    return {"loss": losses, "robust": robust, "learned": robust[1] > robust[0] and robust[1] > 0.7}


def harmed(result):
    return False
