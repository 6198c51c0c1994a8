"""A learned integrator for a chain of springs: pre-activation residual blocks around a lifted state.

The loss stops at a tenth of the variance; adding blocks makes it worse, not better.
"""
import torch
from torch import nn

ARCHITECTURE = "ResNet"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["inplace_on_skip_path"],
    "layers": ["blocks"] + [f"blocks.{i}{s}" for i in range(4) for s in ("", ".act_in", ".fc1")],
    "onset": [0, 0],
}


class PreAct(nn.Module):
    def __init__(self, width, inplace):
        super().__init__()
        self.act_in = nn.ReLU(inplace=inplace)
        self.fc1 = nn.Linear(width, 2 * width)
        self.act_mid = nn.ReLU(inplace=True)
        self.fc2 = nn.Linear(2 * width, width)

    def forward(self, x):
        y = self.act_in(x)
        y = self.fc2(self.act_mid(self.fc1(y)))
        return x + y


class Integrator(nn.Module):
    def __init__(self, state=8, depth=4, inplace=True):
        super().__init__()
        self.lift = nn.Linear(state, state)
        self.blocks = nn.ModuleList([PreAct(state, inplace) for _ in range(depth)])
        self.lower = nn.Linear(state, state)

    def forward(self, s):
        h = self.lift(s)
        for b in self.blocks:
            h = b(h)
        return self.lower(h)


def chain(n, dt=0.15, rounds=6):
    s = torch.randn(n, 8)
    q, v = s[:, :4], s[:, 4:]
    for _ in range(rounds):
        force = -q + 0.5 * (q.roll(1, 1) - q) - 0.3 * q**3
        v = v + dt * force
        q = q + dt * v
    return s, torch.cat([q, v], 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    state, after = chain(4096)
    after = after / after.std()
    model = Integrator(inplace=not fixed)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4)
    losses = []
    with watch(model) as dbg:
        for it in range(500):
            rows = torch.randint(0, 4096, (128,))
            loss = (model(state[rows]) - after[rows]).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "final": sum(losses[-20:]) / 20}


def harmed(result):
    return result["final"] > 0.06
