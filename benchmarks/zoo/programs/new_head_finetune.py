"""Fine-tunes a pre-trained ResNet-like net on a new set of classes by exchanging the last layer.

Accuracy creeps up far more slowly than in the tutorial.
"""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["stale_optimizer_parameters", "parameters_not_in_optimizer"],
    "layers": ["fc"],
    "onset": [0, 0],
}


class Residual(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.short = nn.Conv2d(c_in, c_out, 1, stride, bias=False)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.short(x))


class TinyResNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.layer1 = Residual(8, 12, 1)
        self.layer2 = Residual(12, 20, 2)
        self.fc = nn.Linear(20, classes)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        return self.fc(x.mean((2, 3)))


def pictures(n, classes, gen):
    proto = torch.randn(classes, 1, 10, 10, generator=gen)
    proto = F.avg_pool2d(proto, 3, 1, 1) * 2
    y = torch.randint(0, classes, (n,))
    return proto[y] + 0.6 * torch.randn(n, 1, 10, 10), y


def fit(net, opt, x, y, epochs, each=lambda v: None):
    for _ in range(epochs):
        net.train()
        for rows in torch.randperm(len(x)).split(32):
            loss = F.cross_entropy(net(x[rows]), y[rows])
            opt.zero_grad()
            loss.backward()
            opt.step()
            each(loss.item())


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    gen = torch.Generator().manual_seed(100 + seed)
    net = TinyResNet(8)
    x, y = pictures(512, 8, gen)
    fit(net, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), x, y, 3)

    for p in (*net.stem.parameters(), *net.layer1.parameters()):
        p.requires_grad_(False)
    x, y = pictures(640, 12, gen)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
    net.fc = nn.Linear(20, 12)
    if fixed:
        optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
    losses = []
    with watch(net) as dbg:
        def each(value):
            losses.append(value)
            dbg.record_loss(value)

        fit(net, optimizer, x, y, 7, each)
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.9
