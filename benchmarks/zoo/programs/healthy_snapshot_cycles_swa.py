"""Leaf shapes with a triangular cyclic rate and, from step 800, weight averaging; the averaged net gets its batch
statistics at the end. The loss bumps at the top of every cycle."""
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

ARCHITECTURE = "CNN"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def leaves(n):
    y = torch.randint(6, (n,))
    phi = torch.linspace(0, 6.2832, 33)[:-1]
    r = 1 + 0.3 * torch.cos((y[:, None] + 2) * (phi + 6.28 * torch.rand(n, 1)))
    return (r + 0.25 * torch.randn(n, 32))[:, None] - 1, y


def build():
    return nn.Sequential(
        nn.Conv1d(1, 16, 5, padding=2, padding_mode="circular"), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(16, 32, 5, padding=2, padding_mode="circular"), nn.BatchNorm1d(32), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 6),
    )


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = leaves(3000)
    tx, ty = leaves(600)
    net = build()
    averaged = AveragedModel(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    cyclic = torch.optim.lr_scheduler.CyclicLR(opt, base_lr=0.005, max_lr=0.12, step_size_up=50, step_size_down=150)
    losses = []
    with watch(net) as dbg:
        for step in range(1400):
            i = torch.randint(3000, (48,))
            loss = nn.functional.cross_entropy(net(x[i]), y[i])
            opt.zero_grad()
            loss.backward()
            opt.step()
            cyclic.step()
            if step >= 800 and step % 200 == 199:
                averaged.update_parameters(net)
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    torch.optim.swa_utils.update_bn(x.split(100), averaged)
    averaged.eval()
    with torch.no_grad():
        acc = (averaged(tx).argmax(1) == ty).float().mean().item()
    return {"loss": losses, "accuracy": acc, "learned": acc > 0.85}


def harmed(result):
    return False
