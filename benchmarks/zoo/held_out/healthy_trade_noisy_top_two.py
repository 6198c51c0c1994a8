"""Trade flows with eight experts, two for each row, chosen with noise and kept in balance by a term
of their own. In any step some experts see few rows; over a while all are used."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "MoE"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class TopTwo(nn.Module):
    def __init__(self, width, experts=8, hidden=16):
        super().__init__()
        self.score = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / hidden**0.5)

    def forward(self, h):
        score = self.score(h)
        noisy = score + 0.3 * torch.randn_like(score) if self.training else score
        best, choice = noisy.topk(2, dim=-1)
        share = torch.zeros_like(score).scatter(1, choice, best.softmax(-1))
        answers = torch.einsum("neh,ehw->new", F.gelu(torch.einsum("nw,ewh->neh", h, self.up)),
                               self.down)  # fmt: skip
        load = (share > 0).float().mean(0) / 2
        balance = len(load) * (load * score.softmax(-1).mean(0)).sum()
        return h + (share[..., None] * answers).sum(1), balance, load


class TradeNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.read = nn.Linear(9, width)
        self.experts = TopTwo(width)
        self.norm = nn.LayerNorm(width)
        self.flow = nn.Linear(width, 1)

    def forward(self, x):
        h, balance, load = self.experts(self.read(x))
        return self.flow(self.norm(h))[:, 0], balance, load


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = TradeNet()
    slopes = torch.randn(4, 5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 450, eta_min=3e-4)
    losses = []
    with watch(model) as dbg:
        for _ in range(450):
            x = torch.randn(96, 9)
            region = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
            flow = (slopes[region] * x[:, 4:]).sum(1) / 2.2 + 0.1 * torch.randn(96)
            predicted, balance, load = model(x)
            fit = F.mse_loss(predicted, flow)
            loss = fit + 0.01 * balance
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            dbg.record_loss(loss.item())
            losses.append(fit.item())
    first, last = sum(losses[:10]) / 10, sum(losses[-30:]) / 30
    used = (load > 0.01).sum().item()
    return {"loss": losses, "first": first, "last": last, "used": used,
            "learned": last < 0.4 * first and used >= 7}  # fmt: skip


def harmed(result):
    return False
