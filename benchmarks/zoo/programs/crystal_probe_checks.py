"""Crystal habits from diffraction rings with a small convolutional net. A linear-probe report runs after the
eighth epoch; later the harder, noisier plates come in and the net hardly learns them."""
import torch
import torch.nn as nn
import torch.nn.functional as F

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["frozen_parameters"],
    "layers": ["trunk", "trunk.conv1", "trunk.bn1", "trunk.conv2", "trunk.bn2"],
    "onset": [400, 400],
}


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(16)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x))).mean((2, 3))


class HabitNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.trunk = Trunk()
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.trunk(x))


def plates(n, classes, hard):
    y = torch.randint(classes, (n,))
    g = torch.linspace(-1, 1, 14)
    r = (g[:, None] ** 2 + g[None] ** 2).sqrt()
    theta = torch.atan2(g[:, None].expand(14, 14), g[None].expand(14, 14))
    if hard:
        fold = torch.tensor([2.0, 3.0, 4.0, 5.0])[y % 4]
        pattern = torch.cos(fold[:, None, None] * theta + 6.28 * torch.rand(n, 1, 1))
        noise = 0.3
    else:
        ring = 0.3 + 0.2 * y.float()
        pattern = torch.exp(-(((r - ring[:, None, None]) / 0.12) ** 2))
        noise = 0.5
    return (pattern + noise * torch.randn(n, 14, 14))[:, None], y


def linear_probe(model, x, y, classes):
    for p in model.trunk.parameters():
        p.requires_grad_(False)
    model.eval()
    feats = model.trunk(x)
    probe = torch.zeros(16, classes, requires_grad=True)
    for _ in range(20):
        (g,) = torch.autograd.grad(F.cross_entropy(feats @ probe, y), probe)
        probe = (probe - g).detach().requires_grad_(True)
    model.train()
    return ((feats @ probe).argmax(1) == y).float().mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    easy, hard = plates(1600, 4, False), plates(1600, 4, True)
    vx, vy = plates(500, 4, True)
    model = HabitNet(4)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    losses, report = [], None
    with watch(model) as dbg:
        for epoch in range(26):
            x, y = easy if epoch < 10 else hard
            for i in torch.randperm(1600).split(32):
                loss = F.cross_entropy(model(x[i]), y[i])
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                dbg.record_loss(losses[-1])
            if epoch == 7:
                report = linear_probe(model, easy[0][:300], easy[1][:300], 4)
                if fixed:
                    for p in model.trunk.parameters():
                        p.requires_grad_(True)
    model.eval()
    with torch.no_grad():
        acc = (model(vx).argmax(1) == vy).float().mean().item()
    return {"loss": losses, "probe": report, "hard_accuracy": acc}


def harmed(result):
    return result["hard_accuracy"] < 0.8
