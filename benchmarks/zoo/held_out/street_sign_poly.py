"""Street signs with SGD and the polynomial learning rate of the segmentation papers. The loss goes
down for a moment and then stays exactly where it is, for a dozen epochs."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["optimizer_instability", "training_wiring"],
    "causes": ["lr_decayed_to_zero", "scheduler_misstepped"],
    "layers": [],
    "onset": [1, 12],
}

SHAPES = 6


class Signs(torch.utils.data.Dataset):
    def __init__(self, n):
        self.template = 0.45 * torch.randn(SHAPES, 3, 10, 10)
        self.label = torch.randint(0, SHAPES, (n,))
        self.image = self.template[self.label] + torch.randn(n, 3, 10, 10)
        self.image = self.image / self.image.std()

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.image[i], self.label[i]


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 25, SHAPES),
    )


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    epochs = 12
    data = Signs(1024)
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    length = epochs * len(loader) if fixed else epochs
    scheduler = LambdaLR(optimizer, lambda i: max(0.0, 1 - i / length) ** 0.9)
    losses = []
    with watch(model) as dbg:
        for epoch in range(epochs):
            for image, label in loader:
                loss = F.cross_entropy(model(image), label)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-32:]) / 32 > 0.6
