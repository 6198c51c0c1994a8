"""Arrival delay in classes from flight attributes. The hidden units were meant to speak up 'only for strong
evidence', so their thresholds start far below zero; the scores are the same for all flights."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["dead_neurons", "vanishing_gradients", "optimizer_instability"],
    "causes": ["dying_relu"],
    "layers": ["evidence", "evidence.0", "evidence.1"],
    "onset": [0, 0],
}


class DelayNet(nn.Module):
    def __init__(self, attributes=18, units=80, threshold=0.0):
        super().__init__()
        self.evidence = nn.Sequential(nn.Linear(attributes, units), nn.ReLU())
        self.weigh = nn.Sequential(nn.Linear(units, 32), nn.GELU(), nn.Linear(32, 4))
        nn.init.constant_(self.evidence[0].bias, -threshold)

    def forward(self, flight):
        return self.weigh(self.evidence(flight))


def flights(n):
    flight = torch.rand(n, 18) * 2 - 1
    late = 2 * flight[:, 0] * flight[:, 1] + flight[:, 2] - flight[:, 3].abs()
    cuts = late.quantile(torch.tensor([0.25, 0.5, 0.75]))
    return flight, torch.bucketize(late, cuts)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*flights(2400)), batch_size=60, shuffle=True)
    net = DelayNet(threshold=0.0 if fixed else 6.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    losses = []
    with watch(net) as dbg:
        for epoch in range(10):
            for flight, delay in loader:
                loss = nn.functional.cross_entropy(net(flight), delay)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.9
