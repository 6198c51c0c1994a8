"""Crowd counting: a density map is regressed, with the loss used in the reference code. Diverges at once;
the reference trains patches one at a time, here the batch is 32 with larger maps."""
import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["objective_mismatch", "exploding_gradients", "optimizer_instability"],
    "causes": ["wrong_reduction"],
    "layers": [],
    "onset": [0, 0],
}


class CounterNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.frontend = nn.Sequential(
            nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(),
        )
        self.backend = nn.Sequential(nn.Conv2d(12, 12, 3, padding=2, dilation=2), nn.ReLU(), nn.Conv2d(12, 1, 1))

    def forward(self, x):
        return self.backend(self.frontend(x))


def crowds(n, size=20):
    heads = (torch.rand(n, 1, size, size) < 0.03).float()
    kernel = torch.tensor([1.0, 2, 1])[:, None] * torch.tensor([1.0, 2, 1])[None] / 4
    blob = nn.functional.conv2d(heads, kernel[None, None], padding=1)
    return blob + 0.2 * torch.randn_like(blob), blob


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, density = crowds(512)
    net = CounterNet()
    criterion = nn.MSELoss(reduction="mean" if fixed else "sum")
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    losses, errors = [], []
    with watch(net) as dbg:
        for epoch in range(10):
            for rows in torch.randperm(512).split(32):
                pred = net(x[rows])
                loss = criterion(pred, density[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
                errors.append((pred - density[rows]).pow(2).mean().item())
    return {"loss": losses, "error": sum(errors[-20:]) / 20, "var": density.var().item()}


def harmed(result):
    return not result["error"] < 0.6 * result["var"]
