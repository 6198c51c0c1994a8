"""Bird calls from field recorders: a learnable filterbank, log energies, a small convolution on top.

The first half of the epoch looks good, then the loss is NaN; the memory cards came from three sites.
"""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["log_of_nonpositive"],
    "layers": ["front.compress", "front"],
    "onset": [31, 31],
}
BINS, FRAMES, SPECIES = 40, 16, 5


class LogCompress(nn.Module):
    def __init__(self, floor=0.0):
        super().__init__()
        self.floor = floor

    def forward(self, energy):
        return torch.log(energy + self.floor)


class Filterbank(nn.Module):
    """Positive mixing weights over spectrogram bins, then log energies."""

    def __init__(self, bands, floor):
        super().__init__()
        self.raw = nn.Parameter(torch.randn(bands, BINS))
        self.compress = LogCompress(floor)

    def forward(self, power):
        return self.compress(torch.einsum("kb,nbt->nkt", F.softplus(self.raw), power))


class CallNet(nn.Module):
    def __init__(self, floor):
        super().__init__()
        self.front = Filterbank(12, floor)
        self.conv = nn.Conv1d(12, 24, 3, padding=1)
        self.species = nn.Linear(24, SPECIES)

    def forward(self, power):
        h = F.gelu(self.conv(self.front(power)))
        return self.species(h.mean(-1))


def recordings(count):
    label = torch.randint(0, SPECIES, (count,))
    pitch = 6 + 6 * label[:, None, None] + 2 * torch.randn(count, 1, 1)
    bins = torch.arange(float(BINS))[None, :, None]
    beat = 1 + torch.sin(torch.arange(float(FRAMES)) + 6.28 * torch.rand(count, 1, 1))
    power = torch.exp(-((bins - pitch) ** 2) / 12) * beat + torch.rand(count, BINS, FRAMES) * 0.3
    power[31 * 32 + 9, :, 10:] = 0  # the recorder was switched off before the clip was over
    return power, label


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    power, label = recordings(1920)
    net = CallNet(floor=1e-4 if fixed else 0.0)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    with watch(net) as dbg:
        for epoch in range(5):
            for at in range(0, len(power), 32):
                loss = F.cross_entropy(net(power[at : at + 32]), label[at : at + 32])
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.5
