"""Mean teacher with 16 labels: the consistency weight ramps up from step 300, the teacher is a moving average
without gradient, and the total loss therefore rises while the accuracy does too."""
import copy

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def net():
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def moons(n):
    y = torch.randint(2, (n,))
    t = 3.1416 * torch.rand(n)
    x = torch.stack([torch.where(y == 0, t.cos(), 1 - t.cos()), torch.where(y == 0, t.sin(), 0.5 - t.sin())], 1)
    return (x - torch.tensor([0.5, 0.25])) * 1.6 + 0.2 * torch.randn(n, 2), y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    lx, ly = moons(16)
    ux, _ = moons(2000)
    tx, ty = moons(1000)
    student = net()
    teacher = copy.deepcopy(student).requires_grad_(False)
    opt = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    losses, acc = [], []
    with watch({"student": student, "teacher": teacher}) as dbg:
        for step in range(1500):
            u = ux[torch.randint(2000, (100,))]
            with torch.no_grad():
                goal = teacher(u + 0.1 * torch.randn_like(u)).softmax(1)
            weight = 8.0 * min(1.0, max(0.0, (step - 300) / 400))
            supervised = F.cross_entropy(student(lx + 0.1 * torch.randn_like(lx)), ly)
            agree = (student(u + 0.15 * torch.randn_like(u)).softmax(1) - goal).square().mean()
            loss = supervised + weight * agree
            opt.zero_grad()
            loss.backward()
            opt.step()
            with torch.no_grad():
                for a, b in zip(teacher.parameters(), student.parameters()):
                    a.lerp_(b, 0.02)
            losses.append(loss.item())
            dbg.record_loss(loss.item())
            if step % 300 == 299:
                with torch.no_grad():
                    acc.append((teacher(tx).argmax(1) == ty).float().mean().item())
    return {"loss": losses, "accuracy": acc, "learned": acc[-1] > 0.93}


def harmed(result):
    return False
