"""Convolutional autoencoder of pen strokes; the reconstruction error was taken from a VAE repository.

At the learning rate of the paper it blows up within an epoch, whatever the architecture.
"""
import torch
from torch import nn

ARCHITECTURE = "VAE / autoencoder"
TRUTH = {
    "failures": ["objective_mismatch", "exploding_gradients", "optimizer_instability", "numerical_error", "dead_neurons"],
    "causes": ["wrong_reduction"],
    "layers": [],
    "onset": [0, 0],
}


class Encoder(nn.Module):
    def __init__(self, code):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(8, 16, 3, 2, 1), nn.LeakyReLU(0.1), nn.Flatten()
        )
        self.code = nn.Linear(16 * 16, code)

    def forward(self, x):
        return self.code(self.net(x))


class Decoder(nn.Module):
    def __init__(self, code):
        super().__init__()
        self.grow = nn.Linear(code, 16 * 16)
        self.net = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.LeakyReLU(0.1), nn.ConvTranspose2d(8, 1, 4, 2, 1)
        )

    def forward(self, z):
        return self.net(self.grow(z).unflatten(1, (16, 4, 4)))


def strokes(n, side=16):
    t = torch.linspace(0, 1, 20)
    p0, p1, p2 = torch.rand(3, n, 2, 1) * side
    path = (1 - t) ** 2 * p0 + 2 * t * (1 - t) * p1 + t**2 * p2
    grid = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).float().flatten(1)
    d = (path[:, :, :, None] - grid[None, :, None, :]).square().sum(1).min(1).values
    return (2 * torch.exp(-d / 1.5) - 0.5).view(n, 1, side, side)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    images = strokes(768)
    model = nn.ModuleDict({"encoder": Encoder(24), "decoder": Decoder(24)})
    model.forward = lambda x: model["decoder"](model["encoder"](x))
    criterion = nn.MSELoss(reduction="mean" if fixed else "sum")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    curve = []
    with watch(model) as dbg:
        for epoch in range(10):
            for x in torch.split(images[torch.randperm(len(images))], 32):
                optimizer.zero_grad()
                loss = criterion(model(x), x)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                curve.append(loss.item())
    with torch.no_grad():
        error = (model(images) - images).square().mean().item() / images.var().item()
    return {"loss": curve, "error": error}


def harmed(result):
    return not result["error"] < 0.8
