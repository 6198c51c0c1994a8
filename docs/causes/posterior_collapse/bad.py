"""Weigh the KL term of a VAE ten times.

The cheapest way to a small loss is a code that says nothing: mean and log-variance go to zero,
and the decoder draws one average.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
KL_WEIGHT = 10.0


class AutoEncoder(nn.Module):
    """A small VAE."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(32, 4), nn.Linear(32, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, sample):
        hidden = self.encoder(sample)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        code = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
        return self.decoder(code), mean, log_variance


samples = torch.randn(512, 3) @ torch.randn(3, 16)
model = AutoEncoder()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

with NeuralDbg(model) as dbg:
    for _ in range(250):
        batch = samples[torch.randint(0, 512, (64,))]
        output, mean, log_variance = model(batch)
        kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1).mean()
        loss = nn.functional.mse_loss(output, batch) + KL_WEIGHT * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
