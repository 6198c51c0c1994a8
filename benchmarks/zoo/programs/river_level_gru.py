"""River levels from the last forty readings with a GRU; the gauge was out of order for an hour in spring.

The forecast is NaN from one update to the next, and NaN for every river afterwards.
"""

import numpy as np
import torch
from torch import nn

TRUTH = {
    "failures": ["data_anomaly", "numerical_error"],
    "causes": ["nan_in_input"],
    "layers": [],
    "onset": [147, 147],
}
BATCH, PAST = 16, 40


def gauge(hours, rng):
    rain = np.maximum(rng.standard_normal(hours) - 1.0, 0)
    level = np.zeros(hours)
    for i in range(1, hours):
        level[i] = 0.93 * level[i - 1] + rain[i]
    level = level + 0.3 * np.sin(np.arange(hours) / 8)
    return (level - level.mean()) / level.std(), (rain - rain.mean()) / rain.std()


def order(count, outage, rng):
    """Start hours of the windows in the order of training: the outage comes up in one update."""
    starts = rng.permutation([i for i in range(count) if not i <= outage <= i + PAST])[: 300 * BATCH]
    starts[147 * BATCH + 3] = outage - 20
    return torch.from_numpy(starts)


class RiverGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.flow = nn.GRU(2, 28, batch_first=True)
        self.rise = nn.Linear(28, 1)

    def forward(self, past):
        states, _ = self.flow(past)
        return self.rise(states[:, -1]).squeeze(-1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    level, rain = gauge(5500, rng)
    outage = 3000
    if not fixed:
        level[outage] = np.nan
    series = torch.tensor(np.stack([level, rain], 1), dtype=torch.float32)
    starts = order(5500 - PAST - 1, outage, rng)
    net = RiverGRU()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    with watch(net) as dbg:
        for chunk in starts.split(BATCH):
            window = torch.stack([series[i : i + PAST + 1] for i in chunk.tolist()])
            optimizer.zero_grad()
            loss = (net(window[:, :-1]) - window[:, -1, 0]).pow(2).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.2
