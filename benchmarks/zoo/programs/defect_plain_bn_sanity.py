"""Twelve plain conv+BN layers on textile patches, with the customary sanity pass over validation data up front.

The identical model reached 95 % in the notebook; in the script the loss sits at log(4).
"""
import torch
import torch.nn as nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability", "vanishing_gradients"],
    "causes": ["eval_mode_in_training"],
    "layers": [],
    "onset": [0, 0],
}


def conv_bn(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class PlainNet(nn.Module):
    def __init__(self, w=12, classes=4):
        super().__init__()
        self.stem = conv_bn(1, w)
        self.stage1 = nn.Sequential(*[conv_bn(w, w, 2 if i == 0 else 1) for i in range(5)])
        self.stage2 = nn.Sequential(*[conv_bn(w, w, 2 if i == 0 else 1) for i in range(6)])
        self.fc = nn.Linear(w, classes)

    def forward(self, x):
        return self.fc(self.stage2(self.stage1(self.stem(x))).mean((2, 3)))


def patches(n, side=12):
    y = torch.randint(0, 4, (n,))
    r = torch.arange(side).float()
    phase = 6.28 * torch.rand(n, 1, 1)
    waves = torch.stack(
        [(r.view(-1, 1) * 1.4).expand(side, side), (r * 1.4).expand(side, side), r.view(-1, 1) + r, r.view(-1, 1) - r]
    )
    return torch.sin(waves[y] + phase)[:, None] + 0.5 * torch.randn(n, 1, side, side), y


class Trainer:
    def __init__(self, model, fixed):
        self.model, self.fixed = model, fixed
        self.opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
        self.criterion = nn.CrossEntropyLoss()

    @torch.no_grad()
    def validate(self, x, y):
        was = self.model.training
        self.model.eval()
        accuracy = (self.model(x).argmax(1) == y).float().mean().item()
        if self.fixed:
            self.model.train(was)
        return accuracy

    def fit(self, steps, dbg, val):
        self.model.train()
        log = {"loss": [], "val": [self.validate(*val)]}
        for step in range(steps):
            x, y = patches(32)
            loss = self.criterion(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            dbg.record_loss(loss.item())
            log["loss"].append(loss.item())
        log["val"].append(self.validate(*val))
        return log


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    val = patches(200)
    model = PlainNet()
    with watch(model) as dbg:
        return Trainer(model, fixed).fit(200, dbg, val)


def harmed(result):
    return result["val"][-1] < 0.7
