"""A reader of handwriting adapted with low-rank layers, B at zero and the base frozen on purpose (and said so)."""

import torch
from torch import nn

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Lora(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base
        self.A = nn.Linear(base.in_features, rank, bias=False)
        self.B = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.B.weight)

    def forward(self, x):
        return self.base(x) + 2.0 * self.B(self.A(x))


def fit(model, rule, steps, lr, dbg=None):
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)
    out = []
    for _ in range(steps):
        x = torch.randn(64, 12)
        loss = nn.functional.cross_entropy(model(x), (x @ rule).argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
        if dbg is not None:
            dbg.record_loss(loss.item())
    return out


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rule = torch.randn(12, 4)
    model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))
    fit(model, rule, 250, 3e-3)
    model.requires_grad_(False)
    for i in (0, 2, 4):
        model[i] = Lora(model[i])
    frozen = [f"{i}.base" for i in (0, 2, 4)]
    with watch(model, frozen=frozen) as dbg:
        losses = fit(model, rule + 0.7 * torch.randn(12, 4), 250, 5e-3, dbg)
    return {"loss": losses, "learned": sum(losses[-20:]) < 0.6 * sum(losses[:10]) * 2}


def harmed(result):
    return False
