"""Distillation with the frozen teacher as a submodule of the watched model: it never gets a gradient and need not."""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def network(width):
    return nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 6))


class Distiller(nn.Module):
    def __init__(self, teacher, temperature=3.0):
        super().__init__()
        self.teacher = teacher.requires_grad_(False)
        self.student = network(24)
        self.temperature = temperature

    def forward(self, tea):
        with torch.no_grad():
            soft = (self.teacher(tea) / self.temperature).softmax(1)
        answer = self.student(tea)
        return answer, F.kl_div((answer / self.temperature).log_softmax(1), soft, reduction="batchmean")


def teas(n, rule):
    tea = torch.randn(n, 20)
    return tea, (torch.tanh(tea @ rule[0]) @ rule[1]).argmax(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rule = torch.randn(20, 10) / 3, torch.randn(10, 6)
    teacher = network(160)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=2e-3)
    for _ in range(400):
        tea, grade = teas(128, rule)
        optimizer.zero_grad()
        F.cross_entropy(teacher(tea), grade).backward()
        optimizer.step()
    model = Distiller(teacher)
    optimizer = torch.optim.Adam(model.student.parameters(), lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(450):
            tea, grade = teas(64, rule)
            answer, soft_loss = model(tea)
            loss = 0.3 * F.cross_entropy(answer, grade) + 0.7 * model.temperature**2 * soft_loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    tea, grade = teas(2000, rule)
    with torch.no_grad():
        accuracy = (model.student(tea).argmax(1) == grade).float().mean().item()
    return {"loss": losses, "accuracy": accuracy, "learned": accuracy > 0.75}


def harmed(result):
    return False
