"""A network that knows twelve garden herbs learns four wild ones. The old test set, looked at afterwards, is
at chance.

The new herbs are recognised after very few updates.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["optimizer_instability", "representation_collapse", "exploding_gradients"],
    "causes": ["catastrophic_forgetting", "lr_too_high"],
    "layers": [],
    "onset": [0, 20],
}


class HerbNet(nn.Module):
    def __init__(self, features=24, width=96, herbs=16):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(features, width),
            nn.LayerNorm(width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.GELU(),
        )
        self.name = nn.Linear(width, herbs)

    def forward(self, leaf):
        return self.name(self.backbone(leaf))


class Garden:
    def __init__(self):
        self.centres = torch.randn(16, 24)

    def leaves(self, n, first, last):
        herb = torch.randint(first, last, (n,))
        return self.centres[herb] + 0.6 * torch.randn(n, 24), herb


def run(model, optimizer, draw, steps, record=lambda loss: None):
    for _ in range(steps):
        leaf, herb = draw()
        loss = nn.functional.cross_entropy(model(leaf), herb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        record(loss.item())


@torch.no_grad()
def accuracy(model, leaf, herb):
    model.eval()
    share = (model(leaf).argmax(1) == herb).float().mean().item()
    model.train()
    return share


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    garden, model, losses = Garden(), HerbNet(), []
    run(model, torch.optim.AdamW(model.parameters(), lr=2e-3), lambda: garden.leaves(64, 0, 12), 300)
    old, new = garden.leaves(600, 0, 12), garden.leaves(200, 12, 16)
    report = {"old_before": accuracy(model, *old)}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4 if fixed else 3e-2)

    def mixed():
        if not fixed:
            return garden.leaves(64, 12, 16)
        return tuple(torch.cat(pair) for pair in zip(garden.leaves(32, 0, 12), garden.leaves(32, 12, 16)))

    with watch(model) as dbg:

        def record(loss):
            losses.append(loss)
            dbg.record_loss(loss)

        run(model, optimizer, mixed, 250, record)
    report |= {"loss": losses, "old_after": accuracy(model, *old), "new_after": accuracy(model, *new)}
    return report


def harmed(result):
    return result["old_after"] < 0.6
