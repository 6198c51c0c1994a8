"""Wine quality from a standardised table; all the bottles of this vineyard are 750 ml.

nan from the very first batch, although the raw file has no holes.
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["data_anomaly", "numerical_error"],
    "causes": ["zero_variance_feature", "nan_in_input", "division_by_zero"],
    "layers": [],
    "onset": [0, 0],
}
COLUMNS = ["alcohol", "acid", "sugar", "sulphate", "volume", "year"]


def bottles(n, rng):
    table = np.stack(
        [
            rng.normal(12.5, 1.0, n),
            rng.normal(0.5, 0.15, n),
            rng.gamma(2.0, 1.2, n),
            rng.normal(0.65, 0.1, n),
            np.full(n, 750.0),
            rng.integers(2001, 2020, n).astype(float),
        ],
        axis=1,
    )
    quality = (table[:, 0] - 12.5) - 6 * (table[:, 1] - 0.5) ** 2 * 10 + 4 * (table[:, 3] - 0.65) * (table[:, 2] - 2.4)
    return table, (quality - quality.mean()) / quality.std()


def standardise(table, keep_scale):
    spread = table.std(axis=0)
    if keep_scale:
        spread[spread == 0] = 1.0
    with np.errstate(invalid="ignore"):
        return (table - table.mean(axis=0)) / spread


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    table, quality = bottles(2500, np.random.default_rng(seed))
    x = torch.tensor(standardise(table, keep_scale=fixed), dtype=torch.float32)
    y = torch.tensor(quality, dtype=torch.float32)[:, None]
    loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    model = nn.Sequential(nn.Linear(len(COLUMNS), 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for epoch in range(5):
            for features, target in loader:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(features), target)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.3
