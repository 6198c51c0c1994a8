"""Pairs of recipe steps in the right order: a hinge on the gap of two scores, of which one is scored twice."""
import torch
from torch import nn

TRUTH = {"failures": ["training_wiring", "objective_mismatch"], "causes": ["constant_loss_term"], "layers": [], "onset": [0, 0]}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    taste = torch.randn(16)
    model = nn.Sequential(nn.Linear(16, 48), nn.ELU(), nn.Linear(48, 1))
    norm = nn.Linear(16, 16)
    scorer = nn.Sequential(norm, model)
    optimizer = torch.optim.Adam(scorer.parameters(), lr=2e-3)
    shares = []
    with watch(scorer) as dbg:
        for _ in range(250):
            a, b = torch.randn(64, 16), torch.randn(64, 16)
            first = (a @ taste > b @ taste)[:, None]
            early, late = torch.where(first, a, b), torch.where(first, b, a)
            high = scorer(early)
            low = scorer(late) if fixed else scorer(early)
            order = torch.relu(1 - (high - low)).mean()
            size = 1e-3 * (high.square().mean() + low.square().mean())
            loss = order + size
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            dbg.record_loss(order.item(), "order")
            with torch.no_grad():
                shares.append((scorer(early) > scorer(late)).float().mean().item())
    return {"share": shares}


def harmed(result):
    return sum(result["share"][-20:]) / 20 < 0.8
