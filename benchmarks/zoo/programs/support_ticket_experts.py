"""Support tickets in eight dialects, eight experts, one of them per ticket, chosen by a linear router.

After a while one expert answers nearly all tickets; the loss is that of a single small model.
"""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["representation_collapse", "dead_neurons", "optimizer_instability"],
    "causes": ["router_collapse", "lr_too_high"],
    "layers": ["desk.router", "desk", "desk.experts"] + [f"desk.experts.{i}" for i in range(8)],
    "onset": [0, 40],
}


class ExpertDesk(nn.Module):
    def __init__(self, width, experts=8):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, width)) for _ in range(experts)
        )

    def forward(self, ticket):
        share = self.router(ticket).softmax(-1)
        best, chosen = share.max(-1)
        out = torch.zeros_like(ticket)
        for k, expert in enumerate(self.experts):
            mine = chosen == k
            if mine.any():
                out[mine] = best[mine, None] * expert(ticket[mine])
        load = F.one_hot(chosen, len(self.experts)).float().mean(0)
        self.balance = len(self.experts) * (load * share.mean(0)).sum()
        self.load = load
        return out


class TicketModel(nn.Module):
    def __init__(self, features=16, width=32):
        super().__init__()
        self.read = nn.Linear(features, width)
        self.desk = ExpertDesk(width)
        self.answer = nn.Linear(width, 4)

    def forward(self, ticket):
        return self.answer(self.desk(torch.relu(self.read(ticket))))


def tickets(n, dialect, rules):
    which = torch.randint(0, 8, (n,))
    x = torch.randn(n, 16) * 0.7
    target = torch.einsum("ni,nij->nj", x, rules[which])
    return 3.0 + x + dialect[which], target / 2.8


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    dialect, rules = 2.0 * torch.randn(8, 16), torch.randn(8, 16, 4)
    model = TicketModel()
    optimizer = torch.optim.Adam(
        [
            {"params": model.desk.router.parameters(), "lr": 3e-3 if fixed else 0.3},
            {"params": [p for n, p in model.named_parameters() if "router" not in n]},
        ],
        lr=3e-3,
    )
    log = {"loss": [], "largest_share": []}
    with watch(model) as dbg:
        for step in range(500):
            ticket, target = tickets(96, dialect, rules)
            loss = F.mse_loss(model(ticket), target)
            log["loss"].append(loss.item())
            if fixed:
                loss = loss + 0.1 * model.desk.balance
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            log["largest_share"].append(model.desk.load.max().item())
    return log


def harmed(result):
    return sum(result["largest_share"][-50:]) / 50 > 0.7
