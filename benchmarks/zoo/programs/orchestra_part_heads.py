"""Loudness of orchestra sections from a mixture: a shared trunk, one small network per section.
Only the trunk seems to adapt, and a checkpoint loaded elsewhere gives other numbers."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["unregistered_modules"],
    "layers": ["parts", "parts.sections", "parts.sections.strings", "parts.sections.brass", "parts.sections.winds", "parts.sections.drums"],
    "onset": [0, 0],
}
SECTIONS = ("strings", "brass", "winds", "drums")


class Parts(nn.Module):
    def __init__(self, width, container):
        super().__init__()
        self.sections = container({name: nn.Sequential(nn.Linear(width, 24), nn.ReLU(), nn.Linear(24, 1)) for name in SECTIONS})

    def forward(self, h):
        return torch.cat([self.sections[name](h) for name in SECTIONS], 1)


class Mixdown(nn.Module):
    def __init__(self, container):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, 8), nn.Tanh())
        self.parts = Parts(8, container)

    def forward(self, spectrum):
        return self.parts(self.trunk(spectrum))


def concerts(n):
    loud = torch.randn(n, 4)
    timbre = torch.randn(4, 20)
    spectrum = loud @ timbre + 0.1 * torch.randn(n, 20)
    return spectrum / 2, torch.stack([loud[:, 0] * 2, loud[:, 1].abs() - 1, loud[:, 2].sin() * 2, loud[:, 3] * 3], 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    spectrum, loudness = concerts(1500)
    model = Mixdown(nn.ModuleDict if fixed else dict)
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3)
    losses = []
    with watch(model) as dbg:
        for epoch in range(10):
            total = 0.0
            for rows in torch.randperm(1500).split(50):
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(spectrum[rows]), loudness[rows])
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
                total += loss.item()
            plateau.step(total / 30)
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.6
