"""Siamese network that verifies signatures, contrastive loss on euclidean distance.

The loss falls nicely, then from one iteration to the next everything is nan, although
the loss of that iteration still looked normal.
"""
import torch
from torch import nn

ARCHITECTURE = "Contrastive"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["sqrt_at_zero"],
    "layers": [],
    "onset": [13, 13],
}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.GroupNorm(2, 8), nn.LeakyReLU(0.1),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16), nn.LeakyReLU(0.1),
        )
        self.embed = nn.Linear(16 * 16, 24)

    def forward(self, x):
        return self.embed(self.features(x).flatten(1))


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.0, tiny=0.0):
        super().__init__()
        self.margin, self.tiny = margin, tiny

    def forward(self, a, b, same):
        dist = torch.sqrt((a - b).pow(2).sum(1) + self.tiny)
        return (same * dist.pow(2) + (1 - same) * (self.margin - dist).clamp(min=0).pow(2)).mean()


def make_pairs(writers=40, per_writer=6, pairs=1024):
    proto = torch.randn(writers, 1, 1, 16, 16)
    samples = proto + 0.5 * torch.randn(writers, per_writer, 1, 16, 16)
    left, right, same = [], [], []
    for k in range(pairs):
        w = int(torch.randint(0, writers, (1,)))
        i, j = torch.randperm(per_writer)[:2].tolist()
        if k % 2:
            left.append(samples[w, i]), right.append(samples[w, j]), same.append(1.0)
        else:
            v = (w + 1 + int(torch.randint(0, writers - 1, (1,)))) % writers
            left.append(samples[w, i]), right.append(samples[v, j]), same.append(0.0)
    return torch.stack(left), torch.stack(right), torch.tensor(same)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    a, b, same = make_pairs()
    # one writer handed in a single sheet
    a[847], same[847] = b[847].clone(), 1.0
    net = Encoder()
    criterion = ContrastiveLoss(tiny=1e-9 if fixed else 0.0)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=5e-4)
    history = []
    with watch(net) as dbg:
        for epoch in range(5):
            for rows in torch.arange(1024).split(64):
                loss = criterion(net(a[rows]), net(b[rows]), same[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                history.append(loss.item())
                dbg.record_loss(loss.item())
    with torch.no_grad():
        d = (net(a) - net(b)).norm(dim=1)
    gap = (d[same == 0].mean() - d[same == 1].mean()).item()
    return {"loss": history, "gap": gap}


def harmed(result):
    return not result["gap"] > 0.2
