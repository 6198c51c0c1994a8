"""Bird calls by a convnet on log band energies. One clip in the archive has a silent stretch.

The loss is nan from always the same clip on.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {
    "failures": ["data_anomaly", "numerical_error"],
    "causes": ["inf_in_input", "log_of_nonpositive"],
    "layers": [],
    "onset": [74, 74],
}
SPECIES = 4


class Calls(Dataset):
    def __init__(self, n, floor):
        self.floor = floor
        self.species = torch.randint(0, SPECIES, (n,))
        t = torch.arange(512.0)
        self.audio = 0.3 * torch.randn(n, 512)
        for i, kind in enumerate(self.species.tolist()):
            rate = 0.3 + 0.55 * kind + 0.1 * torch.rand(())
            self.audio[i] += torch.cos(rate * t) * (torch.sin(t / 40 + kind) > 0)
        self.audio[74 * 20 + 11, 128:192] = 0.0

    def __len__(self):
        return len(self.species)

    def __getitem__(self, i):
        frames = self.audio[i].view(16, 32)
        energy = torch.fft.rfft(frames, dim=1).abs().square()[:, 1:]
        return (torch.log(energy + self.floor) / 3)[None], self.species[i]


class CallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)
        self.species = nn.Linear(16 * 16, SPECIES)

    def forward(self, bands):
        h = nn.functional.max_pool2d(nn.functional.silu(self.conv1(bands)), 2)
        h = nn.functional.silu(self.norm(self.conv2(h)))
        return self.species(nn.functional.adaptive_avg_pool2d(h, 4).flatten(1))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(Calls(2000, 1e-4 if fixed else 0.0), batch_size=20)
    net = CallNet()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=5e-4)
    losses = []
    with watch(net) as dbg:
        for epoch in range(2):
            for bands, species in loader:
                loss = nn.functional.cross_entropy(net(bands), species)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.5
