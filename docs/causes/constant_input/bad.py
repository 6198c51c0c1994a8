"""Scale pixels with a division of whole numbers.

`//` of a pixel below 255 by 255 is zero: every image is black, and the model learns the
frequency of the labels.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
labels = torch.randint(0, 2, (512,))
pixels = torch.randint(0, 200, (512, 64))
pixels[:, :32] += 40 * labels.unsqueeze(1)
images = (pixels // 255).float()
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
