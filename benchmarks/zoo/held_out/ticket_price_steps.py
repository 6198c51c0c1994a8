"""Concert ticket prices with SGD and a learning rate that changes at one milestone, where the
last bit of accuracy should come from. From that milestone on the loss gets worse, not better."""

import torch
from torch import nn
from torch.optim.lr_scheduler import MultiStepLR

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients", "dead_neurons"],
    "causes": ["lr_too_high", "scheduler_misstepped"],
    "layers": [],
    "onset": [250, 250],
}


def concerts(n, generator):
    x = torch.randn(n, 9, generator=generator)
    price = x[:, 0] * x[:, 1] + 0.8 * x[:, 2] - (x[:, 3] > 0.5).float() + 0.3 * x[:, 4]
    return x, ((price + 0.3) / 1.4)[:, None]


class Pricer(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.fc1 = nn.Linear(9, width)
        self.fc2 = nn.Linear(width, width)
        self.fc3 = nn.Linear(width, 1)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.fc3(self.act(self.fc2(self.act(self.fc1(x)))))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = concerts(2048, torch.Generator().manual_seed(seed))
    held_x, held_y = concerts(512, torch.Generator().manual_seed(1000 + seed))
    model = Pricer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.04, momentum=0.9)
    scheduler = MultiStepLR(optimizer, milestones=[250], gamma=0.1 if fixed else 10)
    losses = []
    with watch(model) as dbg:
        for _ in range(400):
            rows = torch.randint(0, len(x), (64,))
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        held = nn.functional.mse_loss(model(held_x), held_y).item()
    return {"loss": losses, "held_out": held}


def harmed(result):
    return not result["held_out"] < 0.35
