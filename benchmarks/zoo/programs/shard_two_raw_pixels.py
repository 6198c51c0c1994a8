"""Texture classifier on two shards of data. The second shard was written by another script and holds 0..255 instead of
0..1; loss jumps when the loader reaches it and stays bad for the rest of the epoch."""
import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["data_anomaly"],
    "causes": ["input_distribution_shift"],
    "layers": [],
    "onset": [180, 180],
}


def textures(n):
    kind = torch.randint(0, 5, (n,))
    t = torch.linspace(0, 1, 16)
    freq = 1.5 + kind.float()[:, None, None]
    angle = torch.rand(n, 1, 1) * 3.14
    field = angle.cos() * t[:, None] + angle.sin() * t[None]
    img = 0.5 + 0.35 * torch.sin(6.28 * freq * field + torch.rand(n, 1, 1) * 6.28) + 0.1 * torch.randn(n, 16, 16)
    return img.clamp(0, 1)[:, None], kind


class ConvBlock(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.Conv2d(i, o, 3, padding=1), nn.GELU(), nn.MaxPool2d(2))


class TextureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.s1, self.s2 = ConvBlock(1, 16), ConvBlock(16, 32)
        self.fc = nn.Linear(32 * 16, 5)

    def forward(self, x):
        return self.fc(self.s2(self.s1(x)).flatten(1))


def shard(n, raw):
    x, y = textures(n)
    return (x * 255 if raw else x), y


def stream(fixed):
    for raw in (False, True):
        x, y = shard(180 * 32, raw and not fixed)
        for i in range(0, len(x), 32):
            yield x[i:i + 32], y[i:i + 32]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = TextureNet()
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    losses = []
    with watch(net) as dbg:
        for x, y in stream(fixed):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "before": sum(losses[160:180]) / 20, "after": sum(losses[185:215]) / 30}


def harmed(result):
    return result["after"] > 2 * result["before"]
