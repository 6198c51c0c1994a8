"""Customs labels with a model kept in float16 to save memory, trained by Adam as it comes."""
import torch
from torch import nn

TRUTH = {"failures": ["numerical_error", "optimizer_instability"], "causes": ["optimizer_eps_underflow"], "layers": [], "onset": [0, 5]}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    centre = torch.randn(6, 18)
    kind = torch.randint(0, 6, (900,))
    x = centre[kind] + 0.8 * torch.randn(900, 18)
    model = nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6))
    if not fixed:
        model, x = model.half(), x.half()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(150):
            rows = torch.randint(0, 900, (48,))
            loss = nn.functional.cross_entropy(model(x[rows]).float(), kind[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-10:]) / 10 < 1.0
