"""Add a loss that balances the load, and leave the router free to change its mind."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)

class Mixture(nn.Module):
    """Routes each token to the expert that the router likes best."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        nn.init.constant_(self.router.bias, 0.0)

    def forward(self, tokens):
        shares = self.router(tokens).softmax(1)
        best = shares.argmax(1)
        output = torch.zeros_like(tokens)
        for i, expert in enumerate(self.experts):
            chosen = (best == i).nonzero().squeeze(1)
            output[chosen] = expert(tokens[chosen]) * shares[chosen, i : i + 1]
        load = nn.functional.one_hot(best, 4).float().mean(0)
        return output, 4 * (load * shares.mean(0)).sum()


rules = torch.randn(4, 8, 8)
model = Mixture()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        tokens = torch.randn(64, 8)
        kind = tokens[:, :4].argmax(1)
        targets = torch.einsum("nij,nj->ni", rules[kind], tokens)
        output, imbalance = model(tokens)
        loss = nn.functional.mse_loss(output, targets)
        loss = loss + 0.5 * imbalance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
