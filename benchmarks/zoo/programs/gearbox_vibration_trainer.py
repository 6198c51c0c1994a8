"""Gearbox faults from short vibration records. All is well for half the run; then within one batch
the loss jumps to a huge value and the accuracy never comes back."""
import math

import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability", "exploding_gradients"],
    "causes": ["outlier_batch"],
    "layers": [],
    "onset": [160, 160],
}
COUNTS_PER_VOLT = 3276.8
ZERO = 8192


class Recordings:
    """Shards of records; one of them was written by an older logger, in raw counts."""

    def __init__(self, fixed, shards=320, size=32):
        self.fixed, self.shards, self.size = fixed, shards, size

    def __iter__(self):
        t = torch.linspace(0, 1, 96)
        for shard in range(self.shards):
            kind = torch.randint(0, 4, (self.size,))
            speed = 6 + 3 * kind[:, None].float() + 0.3 * torch.randn(self.size, 1)
            volts = torch.sin(2 * math.pi * (speed * t + torch.rand(self.size, 1))) + 0.9 * torch.randn(self.size, 96)
            if shard == 160:
                volts = volts * COUNTS_PER_VOLT + ZERO
                if self.fixed:
                    volts = (volts - ZERO) / COUNTS_PER_VOLT
            yield volts[:, None], kind


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(1, 16, 9, stride=2)
        self.b = nn.Conv1d(16, 32, 7, stride=2)
        self.c = nn.Linear(32, 4)

    def forward(self, x):
        x = torch.relu_(self.a(x))
        x = torch.relu_(self.b(x))
        return self.c(x.amax(-1))


class Trainer:
    def __init__(self, net, data):
        self.net, self.data = net, data
        self.opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)
        self.losses, self.hits = [], []

    def run(self, dbg):
        for volts, kind in self.data:
            out = self.net(volts)
            loss = nn.functional.cross_entropy(out, kind)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            dbg.record_loss(loss.item())
            self.losses.append(loss.item())
            self.hits.append((out.argmax(1) == kind).float().mean().item())


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    trainer = Trainer(Net(), Recordings(fixed))
    with watch(trainer.net) as dbg:
        trainer.run(dbg)
    return {"loss": trainer.losses, "accuracy": trainer.hits}


def harmed(result):
    return not sum(result["accuracy"][-30:]) / 30 > 0.8
