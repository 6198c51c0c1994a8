"""Galaxy shapes from cut-outs. The rate follows the batch size by a rule taken from a paper; the loss rises
at once and then stays at chance or above."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients", "dead_neurons"],
    "causes": ["lr_too_high"],
    "layers": [],
    "onset": [0, 5],
}


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=2, padding=1)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(self.conv(x))


class Shapes(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(Block(1, 16), Block(16, 32), Block(32, 32))
        self.fc = nn.Linear(128, 3)

    def forward(self, image):
        return self.fc(self.body(image).flatten(1))


def scaled_rate(base, batch, reference=256, linear=True):
    return base * batch / reference if linear else base * (batch / reference) ** 0.5


def cutouts(n):
    kind = torch.randint(0, 3, (n,))
    axis = torch.linspace(-1, 1, 16)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    q = torch.tensor([1.0, 2.5, 5.0])[kind][:, None, None]
    image = torch.exp(-4 * (x**2 + q * y**2))
    return (image[:, None] - 0.2) * 3 + 0.6 * torch.randn(n, 1, 16, 16), kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    batch = 64
    model = Shapes()
    rate = scaled_rate(2e-2, batch) if fixed else scaled_rate(2e-2, batch, reference=1)
    opt = torch.optim.Adam(model.parameters(), lr=rate)
    losses = []
    with watch(model) as dbg:
        for _ in range(250):
            image, kind = cutouts(batch)
            loss = F.cross_entropy(model(image), kind)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.6
