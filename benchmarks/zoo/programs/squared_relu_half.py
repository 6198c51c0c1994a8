"""Particle energies, network with squared ReLU as in the Primer paper and LayerNorm behind it, all under fp16
autocast. NaN within the first epoch; without autocast there is no problem."""
import torch
import torch.nn as nn
import torch.nn.functional as F

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["half_precision_overflow"],
    "layers": ["mix.act", "mix", "mix.norm", "lift.act", "lift"],
    "onset": [10, 11],
}


class SqReLU(nn.Module):
    def __init__(self, safe):
        super().__init__()
        self.safe = safe

    def forward(self, x):
        r = torch.relu(x.float() if self.safe else x)
        return r * r


class Unit(nn.Module):
    def __init__(self, n_in, n_out, safe):
        super().__init__()
        self.lin = nn.Linear(n_in, n_out)
        self.act = SqReLU(safe)
        self.norm = nn.LayerNorm(n_out) if n_out < n_in else nn.Identity()

    def forward(self, x):
        return self.norm(self.act(self.lin(x)))


class EnergyNet(nn.Module):
    def __init__(self, safe):
        super().__init__()
        self.lift = Unit(12, 128, safe)
        self.mix = Unit(128, 48, safe)
        self.head = nn.Linear(48, 3)

    def forward(self, x):
        return self.head(self.mix(self.lift(x)))


def events(n):
    p = torch.randn(n, 12) * (2 + torch.randn(n, 1).exp())
    label = (p[:, :6].square().sum(1) > p[:, 6:].square().sum(1)).long() + (p[:, 0] > 3).long()
    return p, label


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = EnergyNet(safe=fixed)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    losses = []
    with watch(net) as dbg:
        for it in range(300):
            x, y = events(96)
            with torch.autocast("cpu", dtype=torch.float16):
                logits = net(x)
            loss = F.cross_entropy(logits.float(), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "first_nan": next((float(i) for i, v in enumerate(losses) if v != v), -1.0)}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.6
