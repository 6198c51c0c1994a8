"""Classifies windows of server log events with a small transformer encoder and Adam.

The loss jumps above its first value at once and then wanders around the log of the number of classes.
"""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients", "dead_neurons"],
    "causes": ["lr_too_high"],
    "layers": [],
    "onset": [0, 5],
}
EVENTS, LENGTH, INCIDENTS = 40, 16, 6


class LogEncoder(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.event = nn.Embedding(EVENTS, width)
        self.clock = nn.Parameter(0.1 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True, norm_first=False)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.incident = nn.Linear(width, INCIDENTS)

    def forward(self, events):
        h = self.encoder(self.event(events) + self.clock)
        return self.incident(h.mean(1))


def windows(n, signature):
    """Background events; the incident decides which three events are sprinkled in."""
    events = torch.randint(0, EVENTS, (n, LENGTH))
    kind = torch.randint(0, INCIDENTS, (n,))
    where = torch.rand(n, LENGTH).argsort(1)[:, :5]
    which = signature[kind][torch.arange(n)[:, None], torch.randint(0, 3, (n, 5))]
    return events.scatter(1, where, which), kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    signature = torch.randperm(EVENTS)[: 3 * INCIDENTS].view(INCIDENTS, 3)
    loader = DataLoader(TensorDataset(*windows(1600, signature)), batch_size=50, shuffle=True)
    held_events, held_kind = windows(400, signature)
    model = LogEncoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 if fixed else 0.02)
    curve = []
    with watch(model) as dbg:
        for epoch in range(7):
            model.train()
            for events, kind in loader:
                logits = model(events)
                loss = nn.functional.cross_entropy(logits, kind)
                dbg.record_loss(loss.item())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                curve.append(loss.item())
    model.eval()
    with torch.no_grad():
        accuracy = (model(held_events).argmax(1) == held_kind).float().mean().item()
    return {"loss": curve, "chance": math.log(INCIDENTS), "accuracy": accuracy}


def harmed(result):
    return result["accuracy"] < 0.5
