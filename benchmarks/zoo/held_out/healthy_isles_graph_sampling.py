"""Bird counts on islands from sampled neighbours; some islands have none and hear nothing, which
the layer allows for. Most islands have no birds at all, so most outputs are near zero."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "GNN"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Neighbours(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.near = nn.Linear(inputs, outputs, bias=False)

    def forward(self, h, edges):
        to, frm = edges
        heard = torch.zeros_like(h).index_add(0, to, h[frm])
        count = torch.zeros(len(h)).index_add(0, to, torch.ones(len(to)))
        return self.own(h) + self.near(heard / count.clamp(min=1)[:, None])


class IsleNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first, self.second = Neighbours(5, width), Neighbours(width, width)
        self.norm = nn.LayerNorm(width)
        self.log_rate = nn.Linear(width, 1)

    def forward(self, x, edges):
        h = F.relu(self.norm(self.first(x, edges)))
        h = h + F.relu(self.second(h, edges))
        return self.log_rate(h)[:, 0]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    isles = 400
    place = torch.rand(isles, 2)
    x = torch.randn(isles, 5)
    near = (torch.cdist(place, place) < 0.055).fill_diagonal_(False)
    edges = near.nonzero().T
    mean = near.float() @ x / near.sum(1, keepdim=True).clamp(min=1)
    rate = torch.exp(0.7 * x[:, 0] + 0.8 * mean[:, 1] - 0.6)
    birds = torch.poisson(rate)
    model = IsleNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)
    losses = []
    with watch(model) as dbg:
        for _ in range(250):
            kept = edges[:, torch.rand(edges.shape[1]) < 0.8]
            chosen = torch.randperm(isles)[:200]
            guess = model(x, kept)[chosen]
            loss = F.poisson_nll_loss(guess, birds[chosen])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    first, last = sum(losses[:5]) / 5, sum(losses[-30:]) / 30
    flat = (birds.mean() - birds * birds.mean().log()).mean().item()
    return {"loss": losses, "first": first, "last": last, "flat": flat,
            "learned": last < flat - 0.1}  # fmt: skip


def harmed(result):
    return False
