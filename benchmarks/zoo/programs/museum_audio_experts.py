"""Genres of museum audio by eight small experts; each clip goes to its best one. There is no balancing term,
and a few steps later everyone goes to the same door."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": ["representation_collapse", "dead_neurons"], "causes": ["router_collapse"], "layers": ["mix", "mix.door", "mix.experts"], "onset": [0, 120]}


class Mix(nn.Module):
    def __init__(self, width, count=8):
        super().__init__()
        self.door = nn.Linear(width, count)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, width)) for _ in range(count)])

    def forward(self, h):
        share = self.door(h).softmax(-1)
        best = share.argmax(-1)
        out = torch.zeros_like(h)
        for i, expert in enumerate(self.experts):
            mine = best == i
            if mine.any():
                out[mine] = expert(h[mine]) * share[mine, i : i + 1]
        load = F.one_hot(best, share.shape[1]).float().mean(0)
        return h + out, (load * share.mean(0)).sum() * share.shape[1], load


class Audio(nn.Module):
    def __init__(self, pull):
        super().__init__()
        self.enter, self.mix, self.genre = nn.Linear(20, 48), Mix(48), nn.Linear(48, 10)
        if pull:
            with torch.no_grad():
                self.mix.door.bias[2] += 3

    def forward(self, clip):
        h, balance, load = self.mix(torch.tanh(self.enter(clip)))
        return self.genre(h), balance, load


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    centre = torch.randn(10, 20)
    model = Audio(pull=not fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses, top = [], []
    with watch(model) as dbg:
        for _ in range(300):
            kind = torch.randint(0, 10, (64,))
            clip = centre[kind] + 0.9 * torch.randn(64, 20)
            output, balance, load = model(clip)
            loss = F.cross_entropy(output, kind) + (0.1 * balance if fixed else 0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            top.append(load.max().item())
    return {"loss": losses, "top": top}


def harmed(result):
    return sum(result["top"][-30:]) / 30 > 0.9
