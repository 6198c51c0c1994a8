"""A recogniser adapted to a new accent through low-rank updates; the base is locked on purpose. With
a careful start the adapted model is, after hours, identical to the base."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["vanishing_gradients", "training_wiring"],
    "causes": ["blocked_zero_init"],
    "layers": ["inner.down", "inner.up", "inner"],
    "onset": [0, 0],
}


class LowRank(nn.Module):
    def __init__(self, base, rank, spread):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.normal_(self.down.weight, std=spread)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + 2 * self.up(self.down(x))


class Recogniser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.inner = nn.Linear(24, width)
        self.sound = nn.Linear(width, 6)

    def forward(self, x):
        return self.sound(F.silu(self.inner(x)))


def speech(n, centre):
    sound = torch.randint(0, 6, (n,))
    return centre[sound] + 0.6 * torch.randn(n, 24), sound


def learn(model, steps, lr, centre, dbg=None):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=0.0)
    losses = []
    for _ in range(steps):
        x, sound = speech(64, centre)
        loss = F.cross_entropy(model(x), sound)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if dbg is not None:
            dbg.record_loss(loss.item())
    return losses


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    home = torch.randn(6, 24)
    away = home.roll(1, 1) + 0.3 * torch.randn(6, 24)
    model = Recogniser()
    learn(model, 150, 3e-3, home)
    model.requires_grad_(False)
    model.inner = LowRank(model.inner, 8, 0.1 if fixed else 0.0)
    with watch(model) as dbg:
        losses = learn(model, 300, 3e-3, away, dbg)
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.4
