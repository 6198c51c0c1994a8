"""Adapts a clause tagger to contracts of another country with low-rank updates. Only the head seems
to learn: the adapters look the same before and after, and the score is that of a linear probe."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["parameters_not_in_optimizer"],
    "layers": ["body.0", "body.2", "body.4", "body.0.down", "body.0.up", "body.2.down",
               "body.2.up", "body.4.down", "body.4.up"],
    "onset": [0, 0],
}  # fmt: skip


class LowRank(nn.Module):
    def __init__(self, base, rank=6, alpha=12):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * self.up(self.down(x))


class ClauseNet(nn.Module):
    def __init__(self, classes=4, width=48):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(20, width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
            nn.Linear(width, width), nn.GELU(),
        )  # fmt: skip
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x))


def adapt(model):
    for i, layer in enumerate(model.body):
        if isinstance(layer, nn.Linear):
            model.body[i] = LowRank(layer)
    return model


def contracts(turn, n):
    clause = torch.randn(n, 20)
    seen = clause @ turn
    odd = (seen[:, 2] > seen[:, 3].abs() - 0.5).long()
    return clause, (seen[:, 0] * seen[:, 1] > 0).long() * 2 + odd


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    home, abroad = (torch.linalg.qr(torch.randn(20, 20))[0] for _ in range(2))
    model = ClauseNet()
    pretraining = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(300):
        clause, label = contracts(home, 64)
        pretraining.zero_grad()
        F.cross_entropy(model(clause), label).backward()
        pretraining.step()

    model.body.requires_grad_(False)
    model.head = nn.Linear(48, 4)
    if fixed:
        adapt(model)
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=3e-3, weight_decay=0.0)
    if not fixed:
        adapt(model)

    losses = []
    with watch(model) as dbg:
        for _ in range(400):
            clause, label = contracts(abroad, 64)
            loss = F.cross_entropy(model(clause), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 1.05
