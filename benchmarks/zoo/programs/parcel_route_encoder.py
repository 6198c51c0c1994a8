"""Delivery time of a parcel from its scans: multi-head attention over the scans with a padding
mask. Most days are fine; the day after the strike the loss is NaN."""
import torch
from torch import nn

TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["fully_masked_attention"],
    "layers": ["attend"],
    "onset": [41, 41],
}


class RouteModel(nn.Module):
    def __init__(self, depots=30, width=32):
        super().__init__()
        self.depot = nn.Embedding(depots, width)
        self.attend = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.days = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, scans, missing):
        x = self.depot(scans)
        mixed, self.share = self.attend(x, x, x, key_padding_mask=missing)
        h = self.norm(x + mixed).masked_fill(missing[..., None], 0)
        count = (~missing).sum(1, keepdim=True).clamp(min=1)
        return self.days(h.sum(1) / count).squeeze(1)


def one_day(depot_delay, parcels=36, slots=8):
    scans = torch.randint(0, len(depot_delay), (parcels, slots))
    missing = torch.arange(slots) >= torch.randint(1, slots + 1, (parcels, 1))
    delay = depot_delay[scans].masked_fill(missing, 0).sum(1) / (~missing).sum(1)
    return scans, missing, delay


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    depot_delay = torch.randn(30)
    days = [one_day(depot_delay) for _ in range(75)]
    days[41][1][7:9] = True  # parcels never scanned
    if fixed:
        days = [[part[~m.all(1)] for part in (s, m, d)] for s, m, d in days]
    model = RouteModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for epoch in range(4):
            model.train()
            for scans, missing, delay in days:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(scans, missing), delay)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                dbg.record_loss(loss)
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.15
