"""Orchard yields from soil columns and variety flags, standardised batch by batch in the loop.

Training runs for half a minute, then the loss is NaN; the raw table has no missing value.
"""
import torch
from torch import nn

TRUTH = {
    "failures": ["data_anomaly", "numerical_error"],
    "causes": ["zero_variance_feature", "nan_in_input", "division_by_zero"],
    "layers": [],
    "onset": [29, 29],
}
COLUMNS = 8 + 3


def table(rows):
    soil = torch.randn(rows, 8) * torch.tensor([1.0, 20, 3, 0.5, 8, 1, 2, 100]) + 10
    variety = nn.functional.one_hot(torch.randint(0, 3, (rows,)), 3).float()
    variety[29 * 64 : 30 * 64] = torch.tensor([0.0, 1.0, 0.0])  # one grower sent a whole page
    z = (soil - soil.mean(0)) / soil.std(0)
    crop = z[:, 0] * (1 + variety[:, 0]) - (z[:, 1] * variety[:, 2]) + torch.sin(2 * z[:, 2])
    return torch.cat([soil, variety], 1), crop.unsqueeze(1)


def standard(batch, smallest):
    return (batch - batch.mean(0)) / batch.std(0).clamp(min=smallest)


class YieldNet(nn.Sequential):
    def __init__(self, width=64):
        super().__init__(nn.Linear(COLUMNS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def run_epoch(model, pages, optimizer, dbg, smallest, history):
    for features, crop in pages:
        prediction = model(standard(features, smallest))
        loss = nn.functional.huber_loss(prediction, crop)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss.item())
        history.append(loss.item())


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    features, crop = table(64 * 45)
    pages = list(zip(features.split(64), crop.split(64)))
    model = YieldNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    history = []
    with watch(model) as dbg:
        for epoch in range(6):
            run_epoch(model, pages, optimizer, dbg, 1e-3 if fixed else 0.0, history)
    return {"loss": history}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.2
