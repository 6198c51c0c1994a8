"""Guesses the purpose of a website visit from the pages seen, with AdamW and 'strong regularisation'.

Training loss stays at the log of the number of purposes, and every visit gets the same scores.
"""

from dataclasses import dataclass

import torch
from torch import nn

TRUTH = {
    "failures": ["optimizer_instability", "vanishing_gradients", "representation_collapse"],
    "causes": ["weight_decay_too_high"],
    "layers": [],
    "onset": [0, 10],
}


@dataclass
class TrainArgs:
    lr: float = 2e-3
    weight_decay: float = 40.0
    batch_size: int = 64
    steps: int = 350


class VisitNet(nn.Module):
    def __init__(self, pages=150, width=32, purposes=4):
        super().__init__()
        self.page = nn.Embedding(pages, width)
        self.mixer = nn.Linear(width, width)
        self.purpose = nn.Linear(width, purposes)

    def forward(self, visit):
        seen = nn.functional.gelu(self.mixer(self.page(visit)))
        return self.purpose(seen.mean(1))


def visits(n, pages=150, length=10):
    purpose = torch.randint(0, 4, (n,))
    visit = torch.randint(0, pages, (n, length))
    own = torch.randint(0, 20, (n, 4)) + 20 * purpose[:, None]
    visit[:, :4] = own
    return visit, purpose


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    args = TrainArgs(weight_decay=0.01) if fixed else TrainArgs()
    visit, purpose = visits(3000)
    net = VisitNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    losses = []
    with watch(net) as dbg:
        for _ in range(args.steps):
            rows = torch.randint(0, len(visit), (args.batch_size,))
            scores = net(visit[rows])
            loss = nn.functional.cross_entropy(scores, purpose[rows])
            net.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "spread": scores.detach().std(0).mean().item()}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.8
