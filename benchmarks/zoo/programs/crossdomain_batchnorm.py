"""Digit-like images; after each epoch the net is checked on a second camera with other brightness.

The monitored accuracy on the first camera jumps about between epochs and is far below what the
training loss promises.
"""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["train_mode_in_eval"],
    "layers": [],
    "onset": [20, 20],
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 16, 3, padding=1)
        self.b1 = nn.BatchNorm2d(16, momentum=0.3)
        self.c2 = nn.Conv2d(16, 32, 3, padding=1, stride=2)
        self.b2 = nn.BatchNorm2d(32, momentum=0.3)
        self.fc1 = nn.Linear(32 * 36, 48)
        self.fc2 = nn.Linear(48, 6)

    def forward(self, x):
        x = F.relu(self.b1(self.c1(x)))
        x = F.relu(self.b2(self.c2(x)))
        x = F.dropout(F.relu(self.fc1(x.flatten(1))), 0.6, self.training)
        return self.fc2(x)


@torch.no_grad()
def accuracy(net, x, y):
    return torch.cat([net(b).argmax(1) == c for b, c in zip(x.split(40), y.split(40))]).float().mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    proto = F.avg_pool2d(torch.randn(6, 1, 12, 12), 3, 1, 1) * 1.5
    def shots(n):
        y = torch.randint(0, 6, (n,))
        return proto[y] + 0.7 * torch.randn(n, 1, 12, 12), y

    x, y = shots(640)
    x1, y1 = shots(400)
    x2, y2 = shots(400)
    x2 = 0.4 * x2 + 3.0
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    losses, second = [], []
    with watch(net) as dbg:
        for epoch in range(8):
            net.train()
            for rows in torch.randperm(640).split(32):
                loss = F.cross_entropy(net(x[rows]), y[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                dbg.record_loss(losses[-1])
            if fixed:
                net.eval()
            second.append(accuracy(net, x2, y2))
    net.eval()
    return {"loss": losses, "acc": accuracy(net, x1, y1)}


def harmed(result):
    return result["acc"] < 0.75
