"""Accumulation over a varying number of micro-batches, an EMA copy that is evaluated, Lion-like sign updates."""
import copy

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class SignMomentum(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, beta=0.9, decay=0.01):
        super().__init__(params, {"lr": lr, "beta": beta, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.lerp_(p.grad, 1 - group["beta"])
                p.mul_(1 - group["lr"] * group["decay"]).add_(m.sign(), alpha=-group["lr"])


class Mixer(nn.Module):
    def __init__(self, tokens=9, width=24, classes=5):
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.across = nn.Linear(tokens, tokens)
        self.along = nn.Linear(width, width)
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        h = self.embed(x)
        h = h + nn.functional.gelu(self.across(self.n1(h).transpose(1, 2))).transpose(1, 2)
        h = h + nn.functional.gelu(self.along(self.n2(h)))
        return self.head(h.mean(1))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    proto = torch.randn(5, 9, 4)

    def draw(n):
        y = torch.randint(0, 5, (n,))
        return proto[y] + 0.9 * torch.randn(n, 9, 4), y

    net = Mixer()
    shadow = copy.deepcopy(net).requires_grad_(False)
    opt = SignMomentum(net.parameters(), lr=2e-3)
    test = draw(600)
    losses, scores = [], []
    with watch(net) as dbg:
        for step in range(240):
            parts = 1 + step % 4
            total = 0.0
            for _ in range(parts):
                x, y = draw(24)
                loss = nn.functional.cross_entropy(net(x), y) / parts
                loss.backward()
                total += loss.item()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            with torch.no_grad():
                for slow, fast in zip(shadow.parameters(), net.parameters()):
                    slow.lerp_(fast, 0.03)
            dbg.record_loss(total)
            losses.append(total)
            if step % 60 == 59:
                with torch.no_grad():
                    scores.append((shadow(test[0]).argmax(1) == test[1]).float().mean().item())
    return {"loss": losses, "scores": scores, "learned": scores[-1] > 0.85 and losses[0] > 1.3}


def harmed(result):
    return False
