"""Pollen slides come in two archives; the second one was exported as 0-255 and the loader does not know.

The loss is low for the first archive and in the tens for the second, and the model from the end of
the run no longer knows the first.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability"],
    "causes": ["input_distribution_shift", "unnormalized_input"],
    "layers": [],
    "onset": [200, 200],
}


class PollenNet(nn.Module):
    def __init__(self, plants=4):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, 3, padding=1)
        self.conv2 = nn.Conv2d(10, 20, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(20, 20, 3, stride=2, padding=1)
        self.plant = nn.Linear(20 * 9, plants)

    def forward(self, slide):
        h = torch.relu(self.conv1(slide))
        h = torch.relu(self.conv2(h))
        h = torch.relu(self.conv3(h))
        return self.plant(h.flatten(1))


def grains(n, side=12):
    plant = torch.randint(0, 4, (n,))
    axis = torch.arange(float(side))
    centre = 4 + 3 * torch.rand(n, 2)
    distance = ((axis[None, :, None] - centre[:, :1, None]) ** 2 + (axis[None, None] - centre[:, 1:, None]) ** 2).sqrt()
    radius = torch.tensor([1.5, 2.5, 3.5, 3.5])[plant][:, None, None]
    ring = (distance < radius).float()
    ring = torch.where((plant == 3)[:, None, None] & (distance < 2.0), torch.zeros(()), ring)
    return (0.2 + 0.6 * ring + 0.12 * torch.randn(n, side, side)).clamp(0, 1)[:, None], plant


def archives(fixed):
    """Yields batch after batch, first the old archive, then the new one."""
    for name, batches in (("old", 200), ("new", 160)):
        for _ in range(batches):
            slide, plant = grains(32)
            if name == "new" and not fixed:
                slide = (slide * 255).round()
            yield slide, plant


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = PollenNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    losses = []
    with watch(net) as dbg:
        for slide, plant in archives(fixed):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(slide), plant)
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    slide, plant = grains(400)
    with torch.no_grad():
        accuracy = (net(slide).argmax(1) == plant).float().mean().item()
    return {"loss": losses, "accuracy": accuracy}


def harmed(result):
    return result["accuracy"] < 0.8
