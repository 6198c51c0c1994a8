"""Leave the first position of every sequence unmasked."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Reader(nn.Module):
    """Pools a padded sequence with one learned query."""

    def __init__(self):
        super().__init__()
        self.score, self.head = nn.Linear(8, 1), nn.Linear(8, 2)

    def forward(self, tokens, is_padding):
        scores = self.score(tokens).squeeze(-1).masked_fill(is_padding, float("-inf"))
        weights = scores.softmax(-1)
        return self.head((weights.unsqueeze(-1) * tokens).sum(1))


model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

with NeuralDbg(model) as dbg:
    for step in range(80):
        labels = torch.randint(0, 2, (32,))
        tokens = torch.randn(32, 6, 8)
        tokens[..., 0] += 2.0 * labels.unsqueeze(1) - 1.0
        lengths = torch.randint(1, 7, (32,))
        if step == 40:
            lengths[5] = 0
        is_padding = torch.arange(6) >= lengths.clamp(min=1).unsqueeze(1)
        loss = nn.functional.cross_entropy(model(tokens, is_padding), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
