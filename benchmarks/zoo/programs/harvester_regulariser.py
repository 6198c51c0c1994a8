"""Fruit counts per tree row with a small transformer. For the second phase a new optimizer with strong
regularisation is made; from there on the error rises slowly until the net predicts the mean."""
import torch
from torch import nn

ARCHITECTURE = "Transformer"
TRUTH = {
    "failures": ["optimizer_instability", "vanishing_gradients"],
    "causes": ["weight_decay_too_high"],
    "layers": [],
    "onset": [500, 500],
}


class RowNet(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.embed = nn.Linear(5, d)
        self.place = nn.Parameter(0.02 * torch.randn(8, d))
        self.block = nn.TransformerEncoderLayer(d, 4, 48, dropout=0.0, batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(d)
        self.count = nn.Linear(d, 1)

    def forward(self, rows):
        h = self.block(self.embed(rows) + self.place)
        return self.count(self.norm(h).mean(1)).squeeze(1)


def orchard(n, w):
    rows = torch.randn(n, 8, 5)
    per_tree = torch.relu(rows @ w[0]) * torch.sigmoid(2 * rows @ w[1])
    return rows, (per_tree.sum(1) - 2.0)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    w = torch.randn(2, 5) / 1.8
    net = RowNet()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.01)
    losses = []
    with watch(net) as dbg:
        for step in range(1300):
            if step == 500:
                opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.05 if fixed else 20.0)
            rows, y = orchard(32, w)
            loss = nn.functional.mse_loss(net(rows), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    rows, y = orchard(1000, w)
    with torch.no_grad():
        skill = 1 - ((net(rows) - y).square().mean() / y.var()).item()
    return {"loss": losses, "skill": skill}


def harmed(result):
    return result["skill"] < 0.5
