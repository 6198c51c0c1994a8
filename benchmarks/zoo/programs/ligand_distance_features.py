"""Binding scores from all pair distances of a molecule's embedded atoms; small molecules are padded, pairs masked.

Batches come sorted by size. All fine while molecules are full size, then nan, although the masked loss was finite.
"""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["masked_nan_gradient", "sqrt_at_zero"],
    "layers": [],
    "onset": [70, 70],
}
ATOMS = 7


class PairNet(nn.Module):
    def __init__(self, safe):
        super().__init__()
        self.safe = safe
        self.place = nn.Sequential(nn.Linear(5, 32), nn.SiLU(), nn.Linear(32, 6))
        self.kernel = nn.Sequential(nn.Linear(1, 32), nn.SiLU(), nn.Linear(32, 8))
        self.readout = nn.Linear(8, 1)
        i, j = torch.triu_indices(ATOMS, ATOMS, 1)
        self.register_buffer("i", i)
        self.register_buffer("j", j)

    def forward(self, atoms, present):
        p = self.place(atoms)
        both = present[:, self.i] & present[:, self.j]
        square = (p[:, self.i] - p[:, self.j]).square().sum(-1)
        if self.safe:
            square = torch.where(both, square, torch.ones_like(square))
        distance = torch.where(both, square.sqrt(), torch.zeros_like(square))
        feature = self.kernel(distance[..., None]) * both[..., None]
        return self.readout(feature.sum(1) / both.sum(1, keepdim=True))[:, 0]


def molecules(n, size):
    atoms = torch.randn(n, ATOMS, 5)
    present = (torch.arange(ATOMS) < size).expand(n, ATOMS)
    atoms = atoms * present[..., None]
    gap = torch.cdist(atoms[..., :3], atoms[..., :3])
    near = (torch.exp(-gap) * (present[:, :, None] & present[:, None, :])).sum((1, 2))
    return atoms, present, 4 * (near - size) / (size * (size - 1)) - 0.6


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    sizes = [ATOMS] * 60 + [ATOMS - 1] * 10 + [ATOMS - 2] * 40 + [ATOMS - 3] * 40
    library = [molecules(32, s) for s in sizes]
    net = PairNet(safe=fixed)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    losses = []
    with watch(net) as dbg:
        for epoch in range(2):
            for atoms, present, score in library:
                loss = nn.functional.mse_loss(net(atoms, present), score)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                losses.append(loss.item())
                dbg.record_loss(losses[-1])
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.6 * sum(result["loss"][:3]) / 3
