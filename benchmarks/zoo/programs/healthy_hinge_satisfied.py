"""A ranking network with a margin: soon most batches satisfy it wholly, so that the loss and every gradient are exactly zero on
many steps while a hard pair turns up now and then."""
import torch
from torch import nn

ARCHITECTURE = "Contrastive"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Rank(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 48), nn.LeakyReLU(0.1), nn.Linear(48, 1, bias=False))

    def forward(self, better, worse):
        return self.net(better).squeeze(-1), self.net(worse).squeeze(-1)


def pairs(n, weight):
    a, b = torch.randn(n, 10), torch.randn(n, 10)
    worth_a, worth_b = a @ weight, b @ weight
    clear = (worth_a - worth_b).abs() > 0.25
    swap = (worth_a < worth_b)[:, None]
    return torch.where(swap, b, a)[clear], torch.where(swap, a, b)[clear]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    weight = torch.randn(10) / 10**0.5
    model = Rank()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses, right = [], []
    with watch(model) as dbg:
        for _ in range(500):
            up, down = model(*pairs(24, weight))
            loss = nn.functional.margin_ranking_loss(up, down, torch.ones_like(up), margin=1.0)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            right.append((up > down).float().mean().item())
    zero = sum(v == 0 for v in losses[-200:])
    end = sum(right[-100:]) / 100
    return {"loss": losses, "right": end, "zero_steps": zero, "learned": end > 0.97 and zero > 20}


def harmed(result):
    return False
