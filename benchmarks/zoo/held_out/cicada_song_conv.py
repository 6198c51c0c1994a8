"""Cicada species from a strip of sound with one-dimensional convolutions. It overfitted in the
summer, so the user turned regularisation up; now it does not fit at all."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["optimizer_instability", "vanishing_gradients"],
    "causes": ["weight_decay_too_high"],
    "layers": [],
    "onset": [0, 60],
}


class SongNet(nn.Module):
    def __init__(self, species):
        super().__init__()
        self.conv = nn.ModuleList([
            nn.Conv1d(1, 16, 7, stride=2, padding=3),
            nn.Conv1d(16, 24, 5, stride=2, padding=2),
            nn.Conv1d(24, 24, 3, padding=1),
        ])  # fmt: skip
        self.species = nn.Linear(24, species)

    def forward(self, sound):
        h = sound[:, None]
        for conv in self.conv:
            h = F.relu(conv(h))
        return self.species(h.amax(-1))


def record(n, pitches):
    who = torch.randint(0, len(pitches), (n,))
    time = torch.arange(64) / 64
    phase = 6.28 * torch.rand(n, 1)
    song = torch.sin(6.28 * pitches[who][:, None] * time + phase)
    return song * 1.2 + 0.9 * torch.randn(n, 64), who


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    pitches = torch.tensor([4.0, 8.0, 13.0, 19.0])
    model = SongNet(len(pitches))
    decay = 1e-4 if fixed else 0.25
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=decay)
    losses = []
    with watch(model) as dbg:
        for _ in range(360):
            song, who = record(40, pitches)
            loss = F.cross_entropy(model(song), who)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.8
