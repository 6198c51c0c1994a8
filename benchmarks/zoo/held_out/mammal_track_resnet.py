"""Mammal tracks in snow with a small ResNet and the well-known trick of zeroed norm scales, put
into one loop over the modules. The network gives one answer for every photo."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "ResNet"
TRUTH = {
    "failures": ["vanishing_gradients", "training_wiring"],
    "causes": ["blocked_zero_init"],
    "layers": [
        "stem", "stem.0", "stem.1", "stem.2", "stages.0.bn1", "stages.0.bn2", "stages.1.bn1",
        "stages.1.bn2", "stages.0", "stages.1",
    ],
    "onset": [0, 0],
}  # fmt: skip


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(h)))


class TrackNet(nn.Module):
    def __init__(self, animals, width=12):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.stages = nn.Sequential(Block(width), Block(width))
        self.fc = nn.Linear(width, animals)

    def forward(self, x):
        return self.fc(self.stages(self.stem(x)).mean((2, 3)))


def zero_scales(model, only_last):
    for module in model.modules():
        if only_last:
            if isinstance(module, Block):
                nn.init.zeros_(module.bn2.weight)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.zeros_(module.weight)


def tracks(n, prints):
    animal = torch.randint(0, len(prints), (n,))
    image = 0.5 * torch.randn(n, 1, 14, 14)
    corner = torch.randint(0, 9, (n, 2)).tolist()
    for i, (r, c) in enumerate(corner):
        image[i, 0, r : r + 6, c : c + 6] += 1.6 * prints[animal[i]]
    return image, animal


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    prints = torch.randn(4, 6, 6)
    prints = F.avg_pool2d(prints[:, None], 3, stride=1, padding=1)[:, 0]
    prints = prints / prints.std((1, 2), keepdim=True)
    model = TrackNet(animals=4)
    zero_scales(model, only_last=fixed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    with watch(model) as dbg:
        for _ in range(260):
            image, animal = tracks(32, prints)
            loss = F.cross_entropy(model(image), animal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 1.0
