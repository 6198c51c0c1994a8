"""Tremor levels; the night job loads the weights of the evening and makes a new optimizer. The loss leaps."""
import copy

import torch
from torch import nn

TRUTH = {"failures": ["training_wiring", "optimizer_instability"], "causes": ["resume_without_optimizer_state"], "layers": [], "onset": [200, 201]}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(1000, 16)
    y = torch.tanh(x @ torch.randn(16, 4) / 3) + 0.02 * torch.randn(1000, 4)
    model = nn.Sequential(nn.Linear(16, 96), nn.GELU(), nn.Linear(96, 96), nn.GELU(), nn.Linear(96, 4))

    def make():
        return torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.9999))

    optimizer = make()
    decay = 0.985
    losses = []
    with watch(model) as dbg:
        for step in range(320):
            if step == 200:
                kept, old = copy.deepcopy(model.state_dict()), optimizer
                model.load_state_dict(kept)
                optimizer = make()
                if fixed:
                    optimizer.load_state_dict(old.state_dict())
            if step < 200 or fixed:
                for group in optimizer.param_groups:
                    group["lr"] = 1e-2 * max(decay**step, 1e-3)
            rows = torch.randint(0, 1000, (64,))
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return max(result["loss"][200:212]) > 3 * sum(result["loss"][180:200]) / 20
