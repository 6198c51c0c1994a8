"""Keep every beta inside (0, 1)."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Denoiser(nn.Module):
    """Predicts the noise in a noised sample."""

    def __init__(self):
        super().__init__()
        betas = torch.linspace(0.001, 0.2, 100)
        alpha_bar = (1 - betas).cumprod(0)
        self.register_buffer("sqrt_alpha_bar", alpha_bar.sqrt())
        self.register_buffer("sqrt_one_minus_alpha_bar", (1 - alpha_bar).sqrt())
        self.net = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, sample, time, noise):
        signal, rest = self.sqrt_alpha_bar[time], self.sqrt_one_minus_alpha_bar[time]
        noised = signal[:, None] * sample + rest[:, None] * noise
        return self.net(torch.cat([noised, time[:, None] / 100], dim=1))


model = Denoiser()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        sample, noise = 0.3 * torch.randn(64, 2) + 1, torch.randn(64, 2)
        time = torch.randint(0, 100, (64,))
        loss = nn.functional.mse_loss(model(sample, time, noise), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
