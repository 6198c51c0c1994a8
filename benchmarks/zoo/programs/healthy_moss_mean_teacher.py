"""Moss species with few labels: a student is trained, a teacher (an exponential average of it) gives
targets for the rest."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class MossNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 64)
        self.b = nn.Linear(64, 64)
        self.species = nn.Linear(64, 5)

    def forward(self, x):
        return self.species(F.relu(self.b(F.relu(self.a(x)))))


def moss(n, centres):
    kind = torch.randint(0, 5, (n,))
    return centres[kind, torch.randint(0, 2, (n,))] + 0.6 * torch.randn(n, 16), kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    centres = 1.2 * torch.randn(5, 2, 16)
    x, kind = moss(100, centres)
    wild, _ = moss(3000, centres)
    test, answer = moss(1000, centres)
    student = MossNet()
    teacher = copy.deepcopy(student)
    for p in teacher.parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=2e-3)
    losses = []
    with watch(student) as dbg:
        for step in range(400):
            rows, other = torch.randint(0, 100, (32,)), torch.randint(0, 3000, (64,))
            with torch.no_grad():
                target = teacher(wild[other] + 0.1 * torch.randn(64, 16)).softmax(1)
            guess = student(wild[other] + 0.3 * torch.randn(64, 16)).softmax(1)
            weight = min(1.0, step / 200)
            loss = F.cross_entropy(student(x[rows]), kind[rows]) + weight * F.mse_loss(guess, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(teacher.parameters(), student.parameters()):
                    slow.mul_(0.97).add_(fast, alpha=0.03)
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        accuracy = (teacher(test).argmax(1) == answer).float().mean().item()
    return {"loss": losses, "accuracy": accuracy, "learned": accuracy > 0.85}


def harmed(result):
    return False
