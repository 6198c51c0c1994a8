"""The strength of the first arrival decides the magnitude; eighty noise samples follow it.

A hand-rolled cell loop over the trace. The regression error equals the variance of the magnitudes.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["vanishing_gradients", "optimizer_instability"],
    "causes": ["recurrent_vanishing"],
    "layers": ["cell"],
    "onset": [0, 0],
}


class TraceReader(nn.Module):
    def __init__(self, kind, hidden=32):
        super().__init__()
        self.hidden = hidden
        self.cell = kind(2, hidden)
        self.magnitude = nn.Linear(hidden, 1)

    def forward(self, trace):
        h = trace.new_zeros(trace.shape[0], self.hidden)
        for sample in trace.unbind(1):
            h = self.cell(sample, h)
        return self.magnitude(h).squeeze(-1)


class HoldCell(nn.GRUCell):
    """A gated cell that starts out keeping its state."""

    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        with torch.no_grad():
            self.bias_ih[hidden : 2 * hidden].fill_(3.0)


def traces(n, length=80):
    strength = torch.randn(n)
    trace = 0.5 * torch.randn(n, length, 2)
    trace[:, :3, 0] += strength[:, None]
    trace[:, :3, 1] += 1.0
    return trace, strength


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*traces(800)), batch_size=32, shuffle=True)
    model = TraceReader(HoldCell if fixed else nn.RNNCell)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    errors = []
    with watch(model) as dbg:
        for epoch in range(9):
            for trace, strength in loader:
                error = F.mse_loss(model(trace), strength)
                optimizer.zero_grad()
                error.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                dbg.record_loss(error)
                errors.append(error.item())
    return {"loss": errors}


def harmed(result):
    return sum(result["loss"][-25:]) / 25 > 0.6
