"""Two photographs of each moth should get close vectors, other moths far ones: a contrastive net in the style of
SimCLR, judged by the nearest neighbour."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Contrastive"
NET = ["body", "body.0", "body.2", "body.4", "project", ""]
FAULTS = {
    "no_others": {
        "failures": ["representation_collapse"],
        "causes": ["embedding_collapse"],
        "layers": NET,
        "onset": [0, 150],
    },
    "pairs_out_of_order": {
        "failures": ["objective_mismatch", "optimizer_instability"],
        "causes": ["labels_unrelated_to_inputs"],
        "layers": [],
        "onset": [0, 300],
    },
    "length_of_nothing": {
        "failures": ["numerical_error"],
        "causes": ["division_by_zero", "sqrt_at_zero"],
        "layers": ["", "project"],
        "onset": [50, 50],
    },
}


class Encoder(nn.Module):
    def __init__(self, inputs=30, out=12, bias=True):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, 64, bias=bias), nn.ReLU(), nn.Linear(64, 64, bias=bias), nn.ReLU()
        )
        self.project = nn.Linear(64, out, bias=bias)

    def forward(self, x):
        h = self.project(self.body(x))
        return h / h.square().sum(1, keepdim=True).sqrt()


def moths(n, paint):
    trait = torch.randn(n, 6)
    def photo():
        return torch.tanh(trait @ paint) + 0.5 * torch.randn(n, 30) * (torch.arange(30) > 11)
    return photo(), photo()


def train(watch, fixed=False, seed=0, fault="no_others", severity=1.0):
    torch.manual_seed(seed)
    paint = torch.randn(6, 30)
    on = "" if fixed else fault
    encoder = Encoder(bias=fault != "length_of_nothing")
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=2e-3)
    temperature = 0.2
    losses = []
    with watch(encoder) as dbg:
        for step in range(400):
            a, b = moths(48, paint)
            if on == "length_of_nothing" and step == 50:
                a[9] = 0.0
            if on == "pairs_out_of_order":
                b = b[torch.randperm(48)]
            za, zb = encoder(a), encoder(b)
            if on == "no_others":
                loss = (2 - 2 * (za * zb).sum(1)).mean()
            else:
                loss = F.cross_entropy(za @ zb.T / temperature, torch.arange(48))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    a, b = moths(200, paint)
    with torch.no_grad():
        near = (encoder(a) @ encoder(b).T).argmax(1)
    return {"loss": losses, "near": (near == torch.arange(200)).float().mean().item()}


def harmed(result):
    return not result["near"] > 0.8
