"""Total energies of small molecules (in kJ/mol, around minus three thousand) with sum-pooled message passing and SGD.

The loss jumps by factors of ten from batch to batch and the root of it never gets below several hundred.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["exploding_gradients", "optimizer_instability", "objective_mismatch"],
    "causes": ["unnormalized_target"],
    "layers": [],
    "onset": [0, 0],
}
ATOMS, ELEMENTS = 9, 4


class Message(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.send, self.keep = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h, bonds):
        return torch.tanh(self.keep(h) + bonds @ self.send(h))


class EnergyNet(nn.Module):
    def __init__(self, width=32, rounds=3):
        super().__init__()
        self.element = nn.Embedding(ELEMENTS, width)
        self.rounds = nn.ModuleList([Message(width) for _ in range(rounds)])
        self.energy = nn.Linear(width, 1)

    def forward(self, element, bonds):
        h = self.element(element)
        for message in self.rounds:
            h = message(h, bonds)
        return self.energy(h.mean(1)).squeeze(-1)


def molecules(n):
    element = torch.randint(0, ELEMENTS, (n, ATOMS))
    bonds = (torch.rand(n, ATOMS, ATOMS) < 0.25).float().triu(1)
    bonds = bonds + bonds.transpose(1, 2)
    own = torch.tensor([-500.0, -380.0, -250.0, -120.0])[element].sum(1)
    like = (element[:, :, None] == element[:, None, :]).float()
    energy = own - 25 * (bonds * like).sum((1, 2))
    return element, bonds / bonds.sum(2, keepdim=True).clamp(min=1), energy


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    element, bonds, energy = molecules(3000)
    if fixed:
        energy = (energy - energy.mean()) / energy.std()
    net = EnergyNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    with watch(net) as dbg:
        for step in range(350):
            rows = torch.randint(0, len(energy), (50,))
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.mse_loss(net(element[rows], bonds[rows]), energy[rows])
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.5
