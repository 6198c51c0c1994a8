"""Pass the features through numpy on their way to the head.

numpy knows no gradients. The encoder gets none, not even zero, and stays random.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Classifier(nn.Module):
    """An encoder and a head."""

    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(8, 4), nn.Linear(4, 4)

    def forward(self, inputs):
        features = self.encoder(inputs).tanh()
        features = torch.from_numpy(features.detach().numpy().clip(-0.9, 0.9))
        return self.head(features)


inputs = torch.randn(512, 8)
labels = (inputs @ torch.randn(8, 4)).argmax(1)
model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
