"""Six herbs by their spectra, with a training helper from an older project whose network had one convolution.
The loss moves a little at the start and no more."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["frozen_parameters"],
    "layers": ["conv1", "conv10", "conv11", "conv12", "conv10.0", "conv11.0", "conv12.0", "conv10.1", "conv11.1", "conv12.1"],
    "onset": [0, 0],
}


def unit(cin, cout, stride=1):
    return nn.Sequential(nn.Conv1d(cin, cout, 5, stride=stride, padding=2), nn.GroupNorm(2, cout), nn.SiLU())


class Spectra(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 8, 7, padding=3)
        self.conv10, self.conv11, self.conv12 = unit(8, 8, 2), unit(8, 8, 2), unit(8, 8, 2)
        self.fc = nn.Linear(8, 6)

    def forward(self, x):
        return self.fc(self.conv12(self.conv11(self.conv10(self.conv1(x)))).mean(-1))


def freeze(model, prefixes=("conv1",)):
    for name, parameter in model.named_parameters():
        if name.startswith(tuple(prefixes)):
            parameter.requires_grad_(False)
    return model


def spectra(n, lines):
    herb = torch.randint(0, 6, (n,))
    axis = torch.arange(64.0)
    peak = torch.exp(-((axis - lines[herb][..., None] - 3 * torch.randn(n, 1, 1)) ** 2) / 6).sum(1)
    return (peak + 0.25 * torch.randn(n, 64))[:, None], herb


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    lines = torch.tensor([[12.0, 22], [12, 28], [12, 34], [12, 40], [30, 36], [30, 44]])
    model = freeze(Spectra(), ()) if fixed else freeze(Spectra())
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=6e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(350):
            x, herb = spectra(48, lines)
            loss = F.cross_entropy(model(x), herb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.6
