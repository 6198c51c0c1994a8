"""Distillation of a wide teacher into a narrow student: soft targets through KL, hard ones through cross-entropy.

The total loss goes below zero and further down, while the student gets worse than when trained alone.
"""
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["objective_mismatch", "numerical_error", "optimizer_instability"],
    "causes": ["logits_into_probability_loss"],
    "layers": [],
    "onset": [0, 0],
}
K = 6


def net(width):
    return nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, K))


def distillation_loss(student_logits, teacher_logits, y, args, fixed):
    t = args.temperature
    source = F.log_softmax(student_logits / t, dim=1) if fixed else student_logits / t
    soft = F.kl_div(source, F.softmax(teacher_logits / t, dim=1), reduction="batchmean") * t * t
    hard = F.cross_entropy(student_logits, y)
    return args.alpha * soft + (1 - args.alpha) * hard


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    args = SimpleNamespace(temperature=3.0, alpha=0.9, lr=4e-3, steps=400)
    centres = torch.randn(K * 3, 12) * 1.3

    def draw(n):
        which = torch.randint(0, K * 3, (n,))
        return centres[which] + 0.6 * torch.randn(n, 12), which % K

    teacher = net(96)
    warm = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for _ in range(200):
        x, y = draw(128)
        warm.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        warm.step()
    teacher.eval().requires_grad_(False)

    student = net(24)
    optimizer = torch.optim.Adam(student.parameters(), lr=args.lr)
    losses = []
    with watch(student) as dbg:
        for _ in range(args.steps):
            x, y = draw(64)
            loss = distillation_loss(student(x), teacher(x), y, args, fixed)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    x, y = draw(1500)
    with torch.no_grad():
        accuracy = (student(x).argmax(1) == y).float().mean().item()
    return {"loss": losses, "accuracy": accuracy}


def harmed(result):
    return result["accuracy"] < 0.8
