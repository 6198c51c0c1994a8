"""Two encoders trained to find the caption of a sound among all captions of the batch (symmetric InfoNCE).

The loss is nailed to log(batch size) and moves in the third digit only; retrieval is poor.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Contrastive"
TRUTH = {
    "failures": ["representation_collapse", "optimizer_instability", "vanishing_gradients"],
    "causes": ["temperature_misset"],
    "layers": [],
    "onset": [0, 0],
}


class Projection(nn.Module):
    def __init__(self, n_in, n_out=24):
        super().__init__()
        self.up = nn.Linear(n_in, 96)
        self.down = nn.Linear(96, n_out)

    def forward(self, x):
        return F.normalize(self.down(F.relu(self.up(x))), dim=-1)


class DualEncoder(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.audio, self.text = Projection(40), Projection(30)
        self.temperature = temperature

    def forward(self, a, t, fixed):
        similarity = self.audio(a) @ self.text(t).T
        return similarity / self.temperature if fixed else similarity * self.temperature


def scenes(n, gen_a, gen_t):
    z = torch.randn(n, 10)
    return torch.tanh(z @ gen_a) + 0.6 * torch.randn(n, 40), torch.tanh(z @ gen_t) + 0.6 * torch.randn(n, 30)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    gens = torch.randn(10, 40) * 0.5, torch.randn(10, 30) * 0.5
    model = DualEncoder(temperature=0.07)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-5)
    curve = []
    with watch(model) as dbg:
        for step in range(200):
            logits = model(*scenes(64, *gens), fixed)
            target = torch.arange(64)
            loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            curve.append(loss.item())
    with torch.no_grad():
        hits = (model(*scenes(200, *gens), fixed).argmax(1) == torch.arange(200)).float().mean().item()
    return {"loss": curve, "chance": math.log(64), "recall_at_1": hits}


def harmed(result):
    return result["recall_at_1"] < 0.4
