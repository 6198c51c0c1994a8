"""A residual network of nine blocks with batch normalisation on floor tiles, SGD with momentum, steps in the rate."""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class BasicBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        nn.init.zeros_(self.bn2.weight)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(h)))


class ResNet(nn.Module):
    def __init__(self, blocks=9, channels=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
        self.layer = nn.Sequential(*[BasicBlock(channels) for _ in range(blocks)])
        self.fc = nn.Linear(channels, 4)

    def forward(self, x):
        return self.fc(self.layer(self.stem(x)).mean((2, 3)))


def tiles(n, side=14):
    kind = torch.randint(0, 4, (n,))
    t = torch.arange(side)
    phase = torch.randint(0, 4, (n, 1, 1))
    row, column = t[None, :, None], t[None, None]
    kinds = [
        (row + phase) // 2 % 2,
        (column + phase) // 2 % 2,
        (row + column + phase) // 2 % 2,
        ((row + phase) // 2 + (column + phase) // 2) % 2,
    ]
    picture = torch.stack([k.expand(n, side, side) for k in kinds], 1)[torch.arange(n), kind].float()
    return (2 * picture - 1 + 0.8 * torch.randn(n, side, side))[:, None], kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = ResNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [120, 170], gamma=0.2)
    losses = []
    with watch(net) as dbg:
        for _ in range(200):
            picture, kind = tiles(32)
            loss = F.cross_entropy(net(picture), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    net.eval()
    picture, kind = tiles(300)
    with torch.no_grad():
        accuracy = (net(picture).argmax(1) == kind).float().mean().item()
    return {"loss": losses, "accuracy": accuracy, "learned": accuracy > 0.9}


def harmed(result):
    return False
