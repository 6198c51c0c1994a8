"""Shares of six moss species per plot, compared with a botanist's shares by a divergence. The value
becomes negative, which a divergence should not, and the shares are no use."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch", "numerical_error"],
    "causes": ["logits_into_probability_loss"],
    "layers": [],
    "onset": [0, 0],
}
SPECIES = 6


class PlotModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.soil, self.light = nn.Linear(5, 32), nn.Linear(3, 32)
        self.share = nn.Linear(32, SPECIES)

    def forward(self, soil, light):
        return self.share(F.hardswish(self.soil(soil) * torch.sigmoid(self.light(light))))


def plots(n):
    soil, light = torch.randn(n, 5), torch.randn(n, 3)
    score = soil @ torch.randn(5, SPECIES) + light @ torch.randn(3, SPECIES)
    return soil, light, torch.softmax(score, 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    soil, light, share = plots(2000)
    model = PlotModel()
    divergence = nn.KLDivLoss(reduction="batchmean")
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    losses, gap = [], []
    with watch(model) as dbg:
        for step in range(350):
            rows = torch.randint(0, 2000, (50,))
            score = model(soil[rows], light[rows])
            loss = divergence(score.log_softmax(1) if fixed else score, share[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            gap.append((score.softmax(1) - share[rows]).abs().sum(1).mean().item())
    return {"loss": losses, "gap": sum(gap[-20:]) / 20}


def harmed(result):
    return result["gap"] > 0.4
