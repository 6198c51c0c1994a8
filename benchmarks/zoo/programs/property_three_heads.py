"""One trunk predicts a home's price, its area and its energy class score. The area and energy heads were
fine before the price head was added; now none of the three is any good."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients"],
    "causes": ["unnormalized_target"],
    "layers": [],
    "onset": [0, 0],
}


class Homes(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.heads = nn.ModuleDict({name: nn.Linear(64, 1) for name in ("price", "area", "energy")})

    def forward(self, x):
        h = self.trunk(x)
        return {name: head(h).squeeze(1) for name, head in self.heads.items()}


def standard(v):
    return (v - v.mean()) / v.std()


def homes(n, fixed):
    x = torch.randn(n, 12)
    area = standard(x[:, 0] + 0.5 * x[:, 1].abs() + 0.1 * torch.randn(n))
    energy = standard((x[:, 2] * x[:, 3]).tanh() + 0.1 * torch.randn(n))
    price = 310_000 + 90_000 * (0.7 * area + 0.6 * torch.sin(x[:, 4]) + 0.1 * torch.randn(n))
    return x, {"price": standard(price) if fixed else price, "area": area, "energy": energy}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, targets = homes(2000, fixed)
    model = Homes()
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(400):
            rows = torch.randint(0, 1800, (64,))
            out = model(x[rows])
            terms = {k: nn.functional.mse_loss(out[k], targets[k][rows]) for k in out}
            loss = sum(terms.values())
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        out = model(x[1800:])
    score = {k: (1 - (out[k] - targets[k][1800:]).pow(2).mean() / targets[k][1800:].var()).item() for k in out}
    return {"loss": losses, **score}


def harmed(result):
    return min(result["price"], result["area"]) < 0.5
