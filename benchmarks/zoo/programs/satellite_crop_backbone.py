"""Crop types from satellite time series; the encoder was pretrained on another sensor with its
layers locked, and the weights were loaded from that script. Accuracy stays near that of guessing."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["frozen_parameters"],
    "layers": ["encoder", "encoder.0", "encoder.2", "encoder.4"],
    "onset": [0, 0],
}


def pretrained_encoder():
    """What the other project ships: small layers, locked."""
    encoder = nn.Sequential(
        nn.Conv1d(4, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 6, 1)
    )
    for p in encoder.parameters():
        p.requires_grad = False
    return encoder


class CropNet(nn.Module):
    def __init__(self, crops=5):
        super().__init__()
        self.encoder = pretrained_encoder()
        self.crop = nn.Linear(6, crops)

    def forward(self, series):
        return self.crop(self.encoder(series).amax(-1))


def seasons(n, crops=5, length=24):
    label = torch.randint(0, crops, (n,))
    t = torch.linspace(0, 6.28, length)
    shift = label.float()[:, None, None] * 1.2 + 0.3 * torch.randn(n, 1, 1)
    bands = torch.arange(1, 5).float()[None, :, None]
    return torch.sin(bands * 0.5 * t + shift * bands.sqrt()) + 0.5 * torch.randn(n, 4, length), label


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    series, label = seasons(1500)
    net = CropNet()
    if fixed:
        net.requires_grad_(True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
    losses = []
    with watch(net) as dbg:
        net.train()
        for epoch in range(14):
            for rows in torch.randperm(1500).split(50):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(net(series[rows]), label[rows])
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                dbg.record_loss(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.4
