"""Two photographs of a shard should find each other among all others of the batch. Similarities are divided
by a temperature of forty. The loss never moves from the logarithm of the batch size."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": ["representation_collapse", "optimizer_instability", "objective_mismatch"], "causes": ["temperature_misset"], "layers": [], "onset": [0, 0]}


class ShardNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(30, 96), nn.ReLU(), nn.Linear(96, 32))

    def forward(self, photo):
        return F.normalize(self.body(photo), dim=-1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    heat = 0.1 if fixed else 40.0
    net = ShardNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    with watch(net) as dbg:
        for _ in range(300):
            shard = torch.randn(64, 30)
            one, two = net(shard + 0.5 * torch.randn(64, 30)), net(shard + 0.5 * torch.randn(64, 30))
            match = one @ two.T / heat
            goal = torch.arange(64)
            loss = (F.cross_entropy(match, goal) + F.cross_entropy(match.T, goal)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 2.5
