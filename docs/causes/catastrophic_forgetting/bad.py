"""Teach a trained classifier four new classes without showing it the old ones any more.

Its answers to the old classes are right at the switch and wrong soon after, while the loss that is
trained falls all the time.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
centres = torch.randn(12, 16)


def draw(first, last):
    """Return a batch of the classes from `first` up to `last`."""
    labels = torch.randint(first, last, (64,))
    return centres[labels] + 0.5 * torch.randn(64, 16), labels


model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 12))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

with NeuralDbg(model) as dbg:
    for step in range(300):
        inputs, labels = draw(0, 8) if step < 150 else draw(8, 12)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
        if step % 10 == 9:
            inputs, labels = draw(0, 8)
            with torch.no_grad():
                right = (model(inputs).argmax(1) == labels).float().mean()
            dbg.record_metric("accuracy on the old classes", right.item())
