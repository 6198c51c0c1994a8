"""A capsule layer names the motif of small scanned stamps. It trains for part of the first
pass over the album, then all weights are NaN at once although the loss before it was ordinary."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["sqrt_at_zero"],
    "layers": ["motifs.squash", "motifs"],
    "onset": [26, 26],
}
MOTIFS = 4


class Squash(nn.Module):
    def __init__(self, eps=0.0):
        super().__init__()
        self.eps = eps

    def forward(self, s):
        squared = s.pow(2).sum(-1, keepdim=True)
        length = torch.sqrt(squared + self.eps)
        return s * length / (1 + squared)


class CapsuleLayer(nn.Module):
    def __init__(self, inputs, capsules, width, eps):
        super().__init__()
        self.votes = nn.Linear(inputs, capsules * width, bias=False)
        self.squash = Squash(eps)
        self.width = width

    def forward(self, h):
        return self.squash(self.votes(h).view(len(h), -1, self.width))


class StampNet(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.paper = nn.Conv2d(1, 12, 3, stride=2, bias=False)
        self.ink = nn.Conv2d(12, 16, 3, stride=2, bias=False)
        self.motifs = CapsuleLayer(16 * 9, MOTIFS, 8, eps)

    def forward(self, scan):
        h = F.relu(self.ink(F.relu(self.paper(scan)))).flatten(1)
        return self.motifs(h)


def margin_loss(capsules, label):
    size = capsules.square().sum(-1)
    present = F.one_hot(label, MOTIFS).float()
    lost = F.relu(0.8 - size).square() * present + 0.5 * F.relu(size - 0.1).square() * (1 - present)
    return lost.sum(1).mean(), size


def album(n):
    scan, label = 0.15 * torch.rand(n, 1, 15, 15), torch.randint(0, MOTIFS, (n,))
    row, col = torch.meshgrid(torch.arange(15), torch.arange(15), indexing="ij")
    shapes = torch.stack([row % 4 < 2, col % 4 < 2, (row + col) % 5 < 2, (row - 7) ** 2 + (col - 7) ** 2 < 20])
    scan = scan + shapes[label][:, None] * (0.4 + 0.6 * torch.rand(n, 1, 1, 1))
    scan[26 * 40 + 3] = 0  # an empty pocket of the album
    return scan, label


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    pages = DataLoader(TensorDataset(*album(1600)), batch_size=40)
    net = StampNet(1e-6 if fixed else 0.0)
    optim = torch.optim.Adam(net.parameters(), lr=2e-3)
    losses, right = [], []
    with watch(net) as dbg:
        for epoch in range(4):
            for scan, label in pages:
                optim.zero_grad()
                loss, size = margin_loss(net(scan), label)
                loss.backward()
                dbg.record_loss(loss.item())
                optim.step()
                losses.append(loss.item())
                right.append((size.argmax(1) == label).float().mean().item())
    return {"loss": losses, "right": right}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.15
