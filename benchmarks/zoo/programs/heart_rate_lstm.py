"""Next heart-rate values from a wrist band with an LSTM; parameter groups, Adam with its L2 term.

It forecasts a constant. The weights printed after the run are all around 1e-3.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["optimizer_instability", "vanishing_gradients", "representation_collapse"],
    "causes": ["weight_decay_too_high"],
    "layers": [],
    "onset": [0, 20],
}


class BandLSTM(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rhythm = nn.LSTM(1, hidden, batch_first=True)
        self.ahead = nn.Sequential(nn.Linear(hidden, 24), nn.SiLU(), nn.Linear(24, 3))

    def forward(self, past):
        states, _ = self.rhythm(past)
        return self.ahead(states[:, -1])


def beats(minutes):
    t = torch.arange(float(minutes))
    rate = torch.sin(t / 5) + 0.6 * torch.sin(t / 2.3) + 0.15 * torch.randn(minutes)
    windows = ((rate - rate.mean()) / rate.std()).unfold(0, 23, 1)
    return windows[:, :20, None].contiguous(), windows[:, 20:].contiguous()


def build(model, decay):
    weights = [p for p in model.parameters() if p.dim() > 1]
    biases = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": weights, "weight_decay": decay}, {"params": biases, "weight_decay": 0.0}]
    return torch.optim.Adam(groups, lr=4e-3)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    past, future = beats(1600)
    loader = DataLoader(TensorDataset(past[:1200], future[:1200]), batch_size=50, shuffle=True)
    model = BandLSTM()
    optimizer = build(model, 1e-5 if fixed else 1.0)
    log = {"loss": [], "val": []}
    with watch(model) as dbg:
        for epoch in range(12):
            model.train()
            for window, target in loader:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(window), target)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                log["loss"].append(loss.item())
            model.eval()
            with torch.no_grad():
                log["val"].append(nn.functional.mse_loss(model(past[1250:]), future[1250:]).item())
    return log


def harmed(result):
    return result["val"][-1] > 0.5
