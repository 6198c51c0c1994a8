"""Route every token to the expert that the router likes best and balance nothing.

The expert that is ahead gets more tokens, learns more, and is liked more. After a hundred steps
it gets all of them, and the others no gradient.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Mixture(nn.Module):
    """Routes each token to one of eight experts."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 8)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(8))

    def forward(self, tokens):
        shares = self.router(tokens).softmax(1)
        best = shares.argmax(1)
        output = torch.zeros_like(tokens)
        for i, expert in enumerate(self.experts):
            chosen = (best == i).nonzero().squeeze(1)
            output[chosen] = expert(tokens[chosen]) * shares[chosen, i : i + 1]
        load = nn.functional.one_hot(best, 8).float().mean(0)
        return output, 8 * (load * shares.mean(0)).sum()


rule = torch.randn(8, 8) / 2
model = Mixture()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        tokens = torch.randn(64, 8) + 1
        output, imbalance = model(tokens)
        loss = nn.functional.mse_loss(output, tokens @ rule + tokens.abs())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
