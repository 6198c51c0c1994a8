"""A trained convolutional body is kept fixed on purpose (in eval mode too); a new head learns six lichens."""
import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class LichenNet(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
        self.body.requires_grad_(False)
        self.head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 6))

    def train(self, mode=True):
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, image):
        return self.head(self.body(image))


def body():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 32, 3), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )


def images(n, texture):
    label = torch.randint(0, len(texture), (n,))
    base = texture[label].repeat(1, 1, 3, 3)
    return base + 0.6 * torch.randn(n, 3, 9, 9), label


def pretrain(net, texture):
    whole = nn.Sequential(net, nn.Linear(32, len(texture)))
    optimizer = torch.optim.Adam(whole.parameters(), lr=3e-3)
    for _ in range(100):
        x, y = images(64, texture)
        optimizer.zero_grad()
        nn.functional.cross_entropy(whole(x), y).backward()
        optimizer.step()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = body()
    pretrain(net, torch.randn(12, 3, 3, 3))
    texture = torch.randn(6, 3, 3, 3)
    model = LichenNet(net)
    model.train()
    optimizer = torch.optim.Adam(model.head.parameters(), lr=4e-3)
    losses, right = [], []
    with watch(model) as dbg:
        for step in range(250):
            x, y = images(48, texture)
            optimizer.zero_grad()
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            right.append((out.argmax(1) == y).float().mean().item())
    accuracy = sum(right[-20:]) / 20
    return {"loss": losses, "accuracy": accuracy, "learned": accuracy > 0.85}


def harmed(result):
    return False
