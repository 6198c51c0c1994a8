"""A trained picture completer gets a side branch that should read a sketch, joined so that nothing
changes at the start. Nothing changes later either: the sketch has no influence whatsoever."""
import torch
from torch import nn

TRUTH = {
    "failures": ["vanishing_gradients", "training_wiring"],
    "causes": ["blocked_zero_init"],
    "layers": ["branch.enter", "branch.leave", "branch"],
    "onset": [0, 0],
}


def zero(layer):
    for p in layer.parameters():
        nn.init.zeros_(p)
    return layer


class SketchBranch(nn.Module):
    def __init__(self, width, both):
        super().__init__()
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.leave = zero(nn.Conv2d(width, width, 1))
        if both:
            zero(self.enter)

    def forward(self, sketch):
        return self.leave(torch.relu(self.enter(sketch)))


class Completer(nn.Module):
    def __init__(self, both, width=12):
        super().__init__()
        self.look = nn.Conv2d(1, width, 3, padding=1)
        self.branch = SketchBranch(width, both)
        self.paint = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, picture, sketch):
        return self.paint(torch.relu(self.look(picture) + self.branch(sketch)))


def pairs(n, side=10):
    whole = nn.functional.avg_pool2d(torch.randn(n, 1, side, side), 3, 1, 1) * 3
    part = whole.clone()
    part[..., side // 2 :] = 0
    return part, (whole > 0.3).float() - (whole < -0.3).float(), whole


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    part, sketch, whole = pairs(1000)
    model = Completer(both=not fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(300):
            rows = torch.randint(0, 1000, (32,))
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(part[rows], sketch[rows]), whole[rows])
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.25
