"""Run a layer in float16 that cannot hold its values.

The squared features exceed 65,504, so the gradients overflow at every scale. The scaler halves
its scale on every step and skips the optimizer each time.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Energy(nn.Module):
    """Classifies signals by the energy in learned bands."""

    def __init__(self):
        super().__init__()
        self.filters, self.head = nn.Linear(16, 32), nn.Linear(32, 2)

    def forward(self, signal):
        energy = (300 * self.filters(signal)).square()
        return self.head(energy / energy.mean())


signals = torch.randn(512, 16)
labels = (signals[:, :8].square().sum(1) > signals[:, 8:].square().sum(1)).long()
model = Energy()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu")

with NeuralDbg(model) as dbg:
    for _ in range(120):
        rows = torch.randint(0, 512, (64,))
        with torch.autocast("cpu", torch.float16):
            logits = model(signals[rows])
        loss = nn.functional.cross_entropy(logits.float(), labels[rows])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        dbg.record_loss(loss)
