"""Use two layers, and let each node keep its own features."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
DEPTH = 2


class GraphNet(nn.Module):
    """Averages over neighbours, layer by layer."""

    def __init__(self):
        super().__init__()
        self.enter, self.head = nn.Linear(8, 16), nn.Linear(16, 2)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(DEPTH))

    def forward(self, nodes, adjacency):
        nodes = self.enter(nodes)
        for layer in self.layers:
            nodes = nodes + layer(adjacency @ nodes).relu()
        return self.head(nodes)


edges = (torch.rand(64, 64) < 0.2).float() + torch.eye(64)
adjacency = edges / edges.sum(1, keepdim=True)
nodes = torch.randn(64, 8)
labels = (nodes[:, 0] > 0).long()
model = GraphNet()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(120):
        loss = nn.functional.cross_entropy(model(nodes, adjacency), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
