"""Estimates the duty on customs forms with four soft experts. It learns in training; at the
counter, where forms come one at a time, the estimates are far off."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "MoE"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["softmax_wrong_dim"],
    "layers": ["gate"],
    "onset": [0, 0],
}


class SoftExperts(nn.Module):
    def __init__(self, fields=10, experts=4, width=32, axis=0):
        super().__init__()
        self.gate = nn.Linear(fields, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(fields, width), nn.ReLU(), nn.Linear(width, 1))
            for _ in range(experts)
        )
        self.axis = axis

    def forward(self, form):
        share = F.softmax(self.gate(form), dim=self.axis)
        answers = torch.cat([expert(form) for expert in self.experts], dim=1)
        return (share * answers).sum(1)


def duty(form):
    kind = (form[:, 0] > 0).long() * 2 + (form[:, 1] > 0).long()
    rates = torch.tensor([[1.0, 0.2, -0.5], [-0.8, 0.6, 0.1], [0.3, -1.0, 0.4], [0.5, 0.5, 1.0]])
    return (rates[kind] * form[:, 2:5]).sum(1) + 0.3 * kind - 0.45


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = SoftExperts(axis=-1 if fixed else 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(500):
            form = torch.randn(64, 10)
            loss = F.mse_loss(model(form), duty(form))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    counter = torch.randn(300, 10)
    with torch.no_grad():
        single = torch.cat([model(form[None]) for form in counter])
    return {"loss": losses, "counter": F.mse_loss(single, duty(counter)).item()}


def harmed(result):
    return result["counter"] > 0.5
