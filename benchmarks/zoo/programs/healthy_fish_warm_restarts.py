"""Fish species from outlines, SGD with warm restarts: the loss goes up at each restart and comes down lower."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def outlines(n, species):
    kind = torch.randint(0, len(species), (n,))
    return species[kind] + 1.9 * torch.randn(n, 32), kind


class FishNet(nn.Module):
    def __init__(self, species=8):
        super().__init__()
        self.fin = nn.Linear(32, 96)
        self.scale = nn.BatchNorm1d(96)
        self.tail = nn.Linear(96, 48)
        self.species = nn.Linear(48, species)

    def forward(self, outline):
        h = torch.relu(self.scale(self.fin(outline)))
        return self.species(torch.relu(self.tail(h)))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    species = torch.randn(8, 32)
    loader = DataLoader(TensorDataset(*outlines(2000, species)), batch_size=50, shuffle=True)
    test, label = outlines(800, species)
    net = FishNet()
    sgd = torch.optim.SGD(net.parameters(), lr=0.15, momentum=0.9, nesterov=True, weight_decay=1e-4)
    restarts = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(sgd, T_0=80, T_mult=2, eta_min=1e-4)
    curve, rates = [], []
    with watch(net) as dbg:
        for epoch in range(14):
            for outline, kind in loader:
                loss = nn.functional.cross_entropy(net(outline), kind)
                sgd.zero_grad()
                loss.backward()
                sgd.step()
                restarts.step()
                dbg.record_loss(loss.item())
                curve.append(loss.item())
                rates.append(restarts.get_last_lr()[0])
    net.eval()
    with torch.no_grad():
        accuracy = (net(test).argmax(1) == label).float().mean().item()
    return {
        "loss": curve,
        "lr": rates,
        "accuracy": accuracy,
        "learned": accuracy > 0.7 and sum(curve[-20:]) < 0.3 * 20 * curve[0],
    }


def harmed(result):
    return False
