"""A stack of ten convolutions with firing-rate units reads the rhythm of a pulse train. The last layers move
a little, the first not at all, and the loss is the entropy of the classes."""
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

ACTIVATIONS = {"logistic": nn.Sigmoid, "silu": nn.SiLU}


@dataclass
class StackConfig:
    widths: list = field(default_factory=lambda: [20] * 10)
    kernel: int = 5
    activation: str = "logistic"
    lr: float = 2e-3


ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["vanishing_gradients", "saturated_activations"],
    "causes": ["saturating_activations"],
    "layers": ["body"] + [f"body.{i}" for i in range(20)],
    "onset": [0, 0],
}


class Stack(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        layers, last = [], 1
        for width in cfg.widths:
            layers += [nn.Conv1d(last, width, cfg.kernel, padding=cfg.kernel // 2), ACTIVATIONS[cfg.activation]()]
            last = width
        self.body = nn.Sequential(*layers)
        self.out = nn.Linear(last, 3)

    def forward(self, x):
        return self.out(self.body(x).mean(-1))


def trains(n, length=48):
    kind = torch.randint(0, 3, (n,))
    period = torch.tensor([4, 6, 9])[kind]
    t = torch.arange(length)
    pulse = ((t + torch.randint(0, 12, (n, 1))) % period[:, None] == 0).float()
    return (pulse * 3 + 0.2 * torch.randn(n, length) - 0.5)[:, None], kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    cfg = StackConfig(activation="silu") if fixed else StackConfig()
    model = Stack(cfg)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    losses = []
    with watch(model) as dbg:
        for _ in range(240):
            x, kind = trains(32)
            loss = F.cross_entropy(model(x), kind)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.9
