"""Galaxy shapes: the batch of 64 no longer fits, so it is cut into eight pieces with one update
after all of them. With the settings that were fine before, the loss now diverges."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability", "exploding_gradients"],
    "causes": ["accumulation_unscaled"],
    "layers": [],
    "onset": [0, 0],
}


class Morphology(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 12, 3), nn.Conv2d(12, 16, 3)
        self.shape = nn.Linear(16 * 64, 2)

    def forward(self, image):
        h = nn.functional.silu(self.conv2(nn.functional.silu(self.conv1(image))))
        return self.shape(h.flatten(1))


def galaxies(n, side=12):
    e = torch.rand(n, 2) - 0.5
    y, x = torch.meshgrid(torch.linspace(-1, 1, side), torch.linspace(-1, 1, side), indexing="ij")
    r = x**2 * (1 + e[:, :1, None]) + y**2 * (1 - e[:, :1, None]) + 2 * x * y * e[:, 1:, None]
    return (torch.exp(-3 * r) * 2 - 0.6 + 0.1 * torch.randn(n, side, side))[:, None], 4 * e


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    image, shape = galaxies(1024)
    model = Morphology()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    pieces = 8
    losses = []
    with watch(model) as dbg:
        for step in range(140):
            rows = torch.randint(0, 1024, (64,))
            total = 0.0
            for part in rows.chunk(pieces):
                loss = nn.functional.mse_loss(model(image[part]), shape[part])
                (loss / pieces if fixed else loss).backward()
                total += loss.item() / pieces
            optimizer.step()
            optimizer.zero_grad()
            dbg.record_loss(total)
            losses.append(total)
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.4
