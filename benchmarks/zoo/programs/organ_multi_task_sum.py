"""One encoder with three tasks on cell images, the task losses weighed by a helper. The sum goes down, but the
count head stays as bad as on the first day."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["detached_loss_term"],
    "layers": ["heads.count", "heads"],
    "onset": [0, 0],
}


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
        )
        self.heads = nn.ModuleDict({"kind": nn.Linear(24, 3), "glow": nn.Linear(24, 1), "count": nn.Linear(24, 1)})

    def forward(self, image):
        h = self.encoder(image).mean((2, 3))
        return {name: head(h) for name, head in self.heads.items()}


def weigh(terms, weights, fixed):
    """The total, and each term for the log."""
    log = {name: term.item() for name, term in terms.items()}
    total = 0.0
    for name, weight in weights.items():
        plain = weight == 1 and not fixed  # nothing to multiply
        total = total + (log[name] if plain else weight * terms[name])
    return total, log


def images(n):
    kind, count = torch.randint(0, 3, (n,)), torch.randint(1, 8, (n,))
    image = 0.1 * torch.randn(n, 1, 14, 14)
    for i in range(n):
        at = torch.randint(0, 13, (count[i], 2))
        for r, c in at.tolist():
            image[i, 0, r, c : c + 1 + (kind[i] == 1)] += 2.0
            if kind[i] == 2:
                image[i, 0, r + 1, c] += 2.0
    glow = 0.8 * torch.randn(n)
    return image + glow[:, None, None, None] * 0.3, kind, glow, (count - 4.0) / 2


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Cells()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    weights = {"kind": 0.5, "glow": 0.5, "count": 1.0}
    losses, counts = [], []
    with watch(model) as dbg:
        for _ in range(220):
            image, kind, glow, count = images(32)
            out = model(image)
            terms = {
                "kind": F.cross_entropy(out["kind"], kind),
                "glow": F.mse_loss(out["glow"].squeeze(1), glow),
                "count": F.mse_loss(out["count"].squeeze(1), count),
            }
            loss, log = weigh(terms, weights, fixed)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            counts.append(log["count"])
    return {"loss": losses, "count_loss": counts}


def harmed(result):
    return sum(result["count_loss"][-20:]) / 20 > 0.7
