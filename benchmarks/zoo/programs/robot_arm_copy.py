"""Inverse kinematics of a small arm, from a script in which a session can go back to a snapshot.
The error only jitters with the batches and does not improve."""
import copy

import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["stale_optimizer_parameters", "parameters_not_in_optimizer"],
    "layers": [],
    "onset": [0, 0],
}


def reach(n):
    angle = 1.5 * torch.rand(n, 3) - 0.75
    total = angle.cumsum(1)
    return torch.stack([total.cos().sum(1) - 2.3, total.sin().sum(1)], 1), angle


def make_network(width=64):
    return nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3))


class Session:
    """Network, optimizer and a snapshot to go back to."""

    def __init__(self, rebuild):
        self.network = make_network()
        self.optimizer = self.make_optimizer()
        self.snapshot = copy.deepcopy(self.network)
        self.restore(rebuild)

    def make_optimizer(self):
        return torch.optim.Adam(self.network.parameters(), lr=3e-3, betas=(0.9, 0.98))

    def restore(self, rebuild):
        self.network = copy.deepcopy(self.snapshot)
        if rebuild:
            self.optimizer = self.make_optimizer()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    target, angle = reach(3000)
    session = Session(rebuild=fixed)
    network, optimizer = session.network, session.optimizer
    losses = []
    with watch(network) as dbg:
        for step in range(300):
            rows = torch.randint(0, 3000, (100,))
            guess = network(target[rows])
            total = guess.cumsum(1)
            tip = torch.stack([total.cos().sum(1) - 2.3, total.sin().sum(1)], 1)
            loss = (tip - target[rows]).square().sum(1).mean() + 0.01 * guess.square().mean()
            network.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.1
