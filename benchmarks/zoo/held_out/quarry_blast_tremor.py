"""Ground tremor at a village from a quarry's blast plan. The user initialises all layers by hand,
'normally distributed, as in the paper'; the loss starts high and the fit stays poor."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["saturated_activations", "optimizer_instability", "vanishing_gradients"],
    "causes": ["init_too_large"],
    "layers": ["blocks.0", "blocks.1", "blocks.2", "blocks.3", "out"],
    "onset": [0, 0],
}


class TremorNet(nn.Module):
    def __init__(self, inputs=7, width=96, depth=4):
        super().__init__()
        sizes = [inputs] + [width] * depth
        self.blocks = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.out = nn.Linear(width, 1)

    def forward(self, plan):
        for block in self.blocks:
            plan = torch.tanh(block(plan))
        return self.out(plan)[:, 0]


def initialise(model, by_fan_in):
    for module in model.modules():
        if isinstance(module, nn.Linear):
            if by_fan_in:
                nn.init.xavier_normal_(module.weight)
            else:
                nn.init.normal_(module.weight)
            nn.init.zeros_(module.bias)


def tremor(plan):
    charge, distance, delay = plan[:, 0], plan[:, 1], plan[:, 2]
    return charge - 0.8 * distance + 0.5 * torch.sin(2 * delay) + 0.3 * plan[:, 3] * plan[:, 4]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    plans = torch.randn(1500, 7)
    target = tremor(plans)
    target = (target - target.mean()) / target.std() + 0.05 * torch.randn(1500)
    model = TremorNet()
    initialise(model, by_fan_in=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(350):
            i = torch.randint(0, 1200, (64,))
            loss = F.mse_loss(model(plans[i]), target[i])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        held = F.mse_loss(model(plans[1200:]), target[1200:]).item()
    return {"loss": losses, "held_out": held}


def harmed(result):
    return not result["held_out"] < 0.4
