"""Kiln temperatures with a two-layer GRU, AdamW, a plateau scheduler and an evaluation after each
epoch inside the block."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class KilnGRU(nn.Module):
    def __init__(self, hidden=28):
        super().__init__()
        self.gru = nn.GRU(2, hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.ahead = nn.Linear(hidden, 4)

    def forward(self, past):
        return self.ahead(self.gru(past)[0][:, -1])


def kiln(minutes, length=28):
    burner = (torch.rand(minutes // 10 + 1) > 0.5).float().repeat_interleave(10)[:minutes]
    heat = torch.zeros(minutes)
    for i in range(1, minutes):
        heat[i] = 0.9 * heat[i - 1] + 0.5 * burner[i - 1] - 0.2
    series = torch.stack([(heat - heat.mean()) / heat.std() + 0.05 * torch.randn(minutes), burner - 0.5], 1)
    window = series.unfold(0, length, 1).transpose(1, 2)
    return window[:, :24].contiguous(), window[:, 24:, 0].contiguous()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    past, future = kiln(1700)
    loader = DataLoader(TensorDataset(past[:1300], future[:1300]), batch_size=50, shuffle=True)
    model = KilnGRU()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    losses, val = [], []
    with watch(model) as dbg:
        for epoch in range(10):
            model.train()
            for window, target in loader:
                loss = nn.functional.mse_loss(model(window), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            model.eval()
            with torch.no_grad():
                val.append(nn.functional.mse_loss(model(past[1350:]), future[1350:]).item())
            scheduler.step(val[-1])
    return {"loss": losses, "val": val, "learned": val[-1] < 0.3}


def harmed(result):
    return False
