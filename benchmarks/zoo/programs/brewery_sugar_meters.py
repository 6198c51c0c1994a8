"""Sugar content from brewery flow meters. A meter was unplugged for one batch of readings.

The loss on that batch has nine digits, and from then on nothing is learned any more.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability", "exploding_gradients"],
    "causes": ["outlier_batch"],
    "layers": [],
    "onset": [95, 95],
}


class SugarNet(nn.Module):
    def __init__(self, meters=12):
        super().__init__()
        self.fc1 = nn.Linear(meters, 64)
        self.fc2 = nn.Linear(64, 64)
        self.sugar = nn.Linear(64, 1)

    def forward(self, flow):
        h = nn.functional.elu(self.fc1(flow))
        return self.sugar(nn.functional.elu(self.fc2(h))).squeeze(-1)


class Brewery:
    """Readings in the order in which they were logged."""

    def __init__(self, batches, size):
        self.weights = torch.randn(12)
        self.batches, self.size = batches, size

    def __iter__(self):
        for number in range(self.batches):
            flow = torch.randn(self.size, 12)
            sugar = torch.tanh(flow @ self.weights / 3) + 0.4 * flow[:, 0] * flow[:, 1]
            yield number, flow, sugar


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = SugarNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    losses = []
    with watch(net) as dbg:
        for number, flow, sugar in Brewery(320, 40):
            if number == 95 and not fixed:
                flow = flow.clone()
                flow[:, 7] = 4095.0
                flow[:, 2] = -4096.0
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(flow), sugar)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.2
