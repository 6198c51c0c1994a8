"""Protein levels with four micro-batches per update, each loss divided by four, and the rest of an epoch dropped."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
ACCUMULATE = 4


def levels(n):
    x = torch.randn(n, 24)
    mix = torch.randn(24, 3) / 5
    return x, torch.tanh(x @ mix) + 0.3 * (x[:, :3] * x[:, 3:6])


class Accumulator:
    def __init__(self, optimizer, every):
        self.optimizer, self.every, self.count, self.value = optimizer, every, 0, 0.0

    def add(self, loss):
        (loss / self.every).backward()
        self.value += loss.item() / self.every
        self.count += 1
        if self.count % self.every:
            return None
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        value, self.value = self.value, 0.0
        return value


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*levels(2048)), batch_size=16, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Linear(24, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.15, momentum=0.9)
    accumulator = Accumulator(optimizer, ACCUMULATE)
    losses = []
    with watch(model) as dbg:
        for epoch in range(8):
            for x, y in loader:
                value = accumulator.add(nn.functional.mse_loss(model(x), y))
                if value is not None:
                    dbg.record_loss(value)
                    losses.append(value)
    last = sum(losses[-20:]) / 20
    return {"loss": losses, "last": last, "learned": last < 0.3 * sum(losses[:3]) / 3}


def harmed(result):
    return False
