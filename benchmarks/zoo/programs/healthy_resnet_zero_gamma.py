"""ResNet with zero-initialised last norm in each block, warmup from a lr of zero, mixup and label smoothing."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

ARCHITECTURE = "ResNet"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Basic(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(c)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c)
        nn.init.zeros_(self.bn2.weight)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu_(x + self.bn2(self.conv2(y)))


def resnet(c=12, classes=6):
    return nn.Sequential(
        nn.Conv2d(3, c, 3, 2, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU(True), *[Basic(c) for _ in range(3)],
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * c, classes),
    )


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    proto = F.interpolate(torch.randn(6, 3, 4, 4), size=12, mode="bilinear")

    def draw(n):
        y = torch.randint(0, 6, (n,))
        return proto[y] + 0.8 * torch.randn(n, 3, 12, 12), F.one_hot(y, 6).float()

    net = resnet()
    opt = torch.optim.SGD(net.parameters(), lr=0.08, momentum=0.9, nesterov=True, weight_decay=5e-4)
    sched = SequentialLR(opt, [LinearLR(opt, 1e-3, 1.0, 25), CosineAnnealingLR(opt, 175)], milestones=[25])
    losses = []
    with watch(net) as dbg:
        net.train()
        for step in range(200):
            x, y = draw(32)
            lam = torch.distributions.Beta(0.4, 0.4).sample()
            order = torch.randperm(len(x))
            x, y = lam * x + (1 - lam) * x[order], lam * y + (1 - lam) * y[order]
            loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
        net.eval()
        with torch.no_grad():
            x, y = draw(400)
            acc = (net(x).argmax(1) == y.argmax(1)).float().mean().item()
    return {"loss": losses, "accuracy": acc, "learned": acc > 0.85}


def harmed(result):
    return False
