"""Fish in brook videos with a residual network whose blocks are left out by chance in training, the
later the more often: in many steps some blocks see nothing and get no gradient."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "ResNet"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class SometimesBlock(nn.Module):
    def __init__(self, width, keep):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Conv2d(width, width, 1)
        self.keep = keep

    def forward(self, x):
        if self.training and torch.rand(()) > self.keep:
            return x
        branch = self.out(F.relu(self.conv(F.relu(self.norm(x)))))
        return x + branch / self.keep if self.training else x + branch


class BrookNet(nn.Module):
    def __init__(self, width=16, depth=5):
        super().__init__()
        self.stem = nn.Conv2d(2, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            SometimesBlock(width, 1 - 0.25 * (i + 1) / depth) for i in range(depth)
        )
        self.norm = nn.GroupNorm(4, width)
        self.fish = nn.Linear(width, 4)

    def forward(self, frames):
        x = self.stem(frames)
        for block in self.blocks:
            x = block(x)
        return self.fish(F.relu(self.norm(x)).mean((2, 3)))


def frames(n, marks):
    fish = torch.randint(0, 4, (n,))
    video = 0.5 * torch.randn(n, 2, 10, 10)
    for i, (r, c) in enumerate(torch.randint(0, 6, (n, 2)).tolist()):
        video[i, 0, r : r + 4, c : c + 4] += marks[fish[i]]
        video[i, 1, r : r + 4, c : c + 4] += marks[fish[i]].flip(0)
    return video, fish


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    marks = 1.2 * torch.randn(4, 4, 4)
    model = BrookNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    losses = []
    with watch(model) as dbg:
        for _ in range(300):
            video, fish = frames(32, marks)
            loss = F.cross_entropy(model(video), fish)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    model.eval()
    video, fish = frames(400, marks)
    with torch.no_grad():
        right = (model(video).argmax(1) == fish).float().mean().item()
    return {"loss": losses, "accuracy": right, "learned": right > 0.75}


def harmed(result):
    return False
