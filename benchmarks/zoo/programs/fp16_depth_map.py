"""Autoencoder for depth maps under fp16 autocast, no GradScaler since 'it ran without'. It trains in bf16 and
fp32, in fp16 the encoder does not move and the pictures stay grey."""
import torch
from torch import nn

ARCHITECTURE = "VAE / autoencoder"
TRUTH = {
    "failures": ["vanishing_gradients", "numerical_error"],
    "causes": ["half_precision_underflow"],
    "layers": [],
    "onset": [0, 0],
}


class DepthAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(256, 96), nn.GELU(), nn.Linear(96, 24))
        self.decoder = nn.Sequential(nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 256))

    def forward(self, x):
        return self.decoder(self.encoder(x))


def scenes(n):
    ax = torch.linspace(-1, 1, 16)
    slope = torch.randn(n, 2, 1, 1)
    bump = torch.rand(n, 2, 1, 1) * 1.4 - 0.7
    plane = slope[:, 0] * ax[:, None] + slope[:, 1] * ax[None]
    hill = torch.exp(-6 * ((ax[:, None] - bump[:, 0]) ** 2 + (ax[None] - bump[:, 1]) ** 2))
    metres = plane + 2 * hill
    return metres.flatten(1) * 1e-3  # kilometres


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = DepthAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-12)
    dtype = torch.bfloat16 if fixed else torch.float16
    losses = []
    with watch(model) as dbg:
        for _ in range(300):
            depth = scenes(64)
            scaled = depth * 1e3
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=dtype):
                out = model(scaled)
            loss = (out.float() * 1e-3 - depth).pow(2).mean()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "ratio": sum(losses[-10:]) / sum(losses[:3]) * 0.3}


def harmed(result):
    return result["ratio"] > 0.3
