"""Two-tower matcher: does this query fit this item? Weights were set by hand 'so that runs are reproducible'.

The matcher improves a little at first and then sticks, however wide the towers are made.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

ARCHITECTURE = "Contrastive"
TRUTH = {
    "failures": ["optimizer_instability", "training_wiring", "representation_collapse"],
    "causes": ["symmetric_init"],
    "layers": [
        "query", "item", "query.fc1", "query.fc2", "item.fc1", "item.fc2",
    ],
    "onset": [0, 0],
}


class Tower(nn.Module):
    def __init__(self, n_in, width, n_out):
        super().__init__()
        self.fc1 = nn.Linear(n_in, width)
        self.fc2 = nn.Linear(width, n_out)

    def forward(self, x):
        return self.fc2(F.softplus(self.fc1(x)))


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = Tower(6, 40, 12)
        self.item = Tower(6, 40, 12)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, q, i):
        return torch.einsum("bd,bd->b", self.query(q), self.item(i)) + self.bias


def reproducible(m):
    if isinstance(m, nn.Linear):
        nn.init.constant_(m.weight, 1.0 / m.in_features)
        nn.init.zeros_(m.bias)


def fan_in(m):
    if isinstance(m, nn.Linear):
        nn.init.normal_(m.weight, std=m.in_features**-0.5)
        nn.init.zeros_(m.bias)


def interactions(n):
    q, i = torch.randn(n, 6), torch.randn(n, 6)
    return q, i, ((q[:, :3] * i[:, :3]).sum(1) > 0).float()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Matcher()
    model.apply(fan_in if fixed else reproducible)
    optim = torch.optim.Adam(model.parameters(), lr=5e-3)
    test = interactions(1000)
    curve = []
    with watch(model) as dbg:
        for step in range(450):
            q, i, y = interactions(128)
            optim.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(q, i), y)
            loss.backward()
            optim.step()
            curve.append(loss.item())
            dbg.record_loss(loss)
        with torch.no_grad():
            acc = ((model(*test[:2]) > 0) == (test[2] > 0)).float().mean().item()
    return {"loss": curve, "accuracy": acc}


def harmed(result):
    return result["accuracy"] < 0.8
