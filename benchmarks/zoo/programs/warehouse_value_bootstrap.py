"""Values of warehouse states learned off-policy from logged moves: one network, its own estimate as the target.

The estimates should be below ten. They double every few updates.
"""

import copy
from collections import namedtuple

import torch
from torch import nn

TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients"],
    "causes": ["value_divergence"],
    "layers": [],
    "onset": [0, 60],
}
Log = namedtuple("Log", "here next reward cleared")


class ValueNet(nn.Module):
    def __init__(self, features=6, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
        self.out = nn.Linear(width, 1)

    def forward(self, state):
        return self.out(self.body(state)).squeeze(-1)


def logged_moves(n):
    """Moves as the night shift logged them: always from lightly to heavily loaded aisles, full ones are cleared."""
    load = torch.rand(n, 1)
    aisle = torch.nn.functional.normalize(torch.randn(n, 6).abs(), dim=1)
    here = aisle * (0.3 + load)
    after = here * 2.2 + 0.05 * torch.randn(n, 6)
    return Log(here, after, here[:, 0] + 0.5 * here[:, 1:3].sum(1), after.norm(dim=1) > 1.3)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    log = logged_moves(4000)
    values = ValueNet()
    optimizer = torch.optim.Adam(values.parameters(), lr=2e-3)
    frozen = copy.deepcopy(values)
    losses, highest = [], []
    with watch(values) as dbg:
        for update in range(500):
            rows = torch.randint(0, len(log.here), (64,))
            here, after, reward = log.here[rows], log.next[rows], log.reward[rows]
            with torch.no_grad():
                future = frozen(after) * ~log.cleared[rows] if fixed else values(after)
            loss = nn.functional.mse_loss(values(here), reward + 0.95 * future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            highest.append(future.abs().max().item())
            if update % 50 == 49:
                frozen.load_state_dict(values.state_dict())
    return {"loss": losses, "highest": highest}


def harmed(result):
    return not max(result["highest"][-20:]) < 50
