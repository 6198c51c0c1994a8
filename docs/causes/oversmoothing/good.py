"""Use two layers, and let each node keep its own features."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class GraphLayer(nn.Module):
    """Averages over neighbours, then transforms."""

    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, 16)
        self.own = nn.Linear(features, 16)

    def forward(self, nodes, adjacency):
        return (self.linear(adjacency @ nodes) + self.own(nodes)).relu()


class GraphNet(nn.Module):
    """Several graph layers and a head."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(GraphLayer(8 if i == 0 else 16) for i in range(2))
        self.head = nn.Linear(16, 2)

    def forward(self, nodes, adjacency):
        for layer in self.layers:
            nodes = layer(nodes, adjacency)
        return self.head(nodes)


edges = (torch.rand(64, 64) < 0.2).float() + torch.eye(64)
adjacency = edges / edges.sum(1, keepdim=True)
nodes = torch.randn(64, 8)
labels = (nodes[:, 0] > 0).long()
model = GraphNet()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)

with NeuralDbg(model) as dbg:
    for _ in range(120):
        loss = nn.functional.cross_entropy(model(nodes, adjacency), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
