"""Which room next? A small mixture of experts, one expert per visitor, chosen by a router."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "MoE"
FAULTS = {
    "first_come": {
        "failures": ["representation_collapse", "dead_neurons"],
        "causes": ["router_collapse", "init_too_large"],
        "layers": ["moe", "moe.router"] + [f"moe.experts.{i}" for i in range(4)] + ["moe.experts"],
        "onset": [0, 40],
    },
    "choice_without_weight": {
        "failures": ["training_wiring", "vanishing_gradients"],
        "causes": ["detached_graph"],
        "layers": ["moe.router", "moe"],
        "onset": [0, 0],
    },
    "share_over_visitors": {
        "failures": ["objective_mismatch", "optimizer_instability"],
        "causes": ["softmax_wrong_dim"],
        "layers": ["moe.router", "moe"],
        "onset": [0, 0],
    },
    "experts_in_a_list": {
        "failures": ["training_wiring"],
        "causes": ["unregistered_modules"],
        "layers": ["moe", "moe.experts", ""],
        "onset": [0, 0],
    },
}


class MoE(nn.Module):
    def __init__(self, width, experts, on):
        super().__init__()
        self.router = nn.Linear(width, experts)
        made = [nn.Sequential(nn.Linear(width, 12), nn.GELU(), nn.Linear(12, width)) for _ in range(experts)]
        self.experts = made if on == "experts_in_a_list" else nn.ModuleList(made)
        self.on = on

    def forward(self, x):
        logits = self.router(x)
        share = logits.softmax(0 if self.on == "share_over_visitors" else -1)
        self.use = logits.softmax(-1).mean(0)
        if self.on == "share_over_visitors":
            return torch.stack([share[:, k, None] * e(x) for k, e in enumerate(self.experts)]).sum(0)
        top = logits.argmax(-1)
        out = torch.zeros_like(x)
        for k, expert in enumerate(self.experts):
            rows = (top == k).nonzero().squeeze(1)
            if len(rows):
                weight = 1.0 if self.on == "choice_without_weight" else share[rows, k, None]
                out = out.index_copy(0, rows, weight * expert(x[rows]))
        return out


class Guide(nn.Module):
    def __init__(self, on, width=24, rooms=6):
        super().__init__()
        self.enter = nn.Linear(10, width)
        self.moe = MoE(width, 4, on)
        self.room = nn.Linear(width, rooms)

    def forward(self, visitor):
        h = torch.tanh(self.enter(visitor))
        return self.room(self.moe(h))


def visitors(n, taste):
    x = torch.randn(n, 10)
    kind = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
    return x, torch.einsum("ni,nir->nr", x[:, 2:], taste[kind]).argmax(1)


def train(watch, fixed=False, seed=0, fault="first_come", severity=1.0):
    torch.manual_seed(seed)
    taste = torch.randn(4, 8, 6)
    on = "" if fixed else fault
    guide = Guide(on)
    with torch.no_grad():
        if on == "first_come":
            guide.moe.router.bias[2] = 8.0 * severity
    optimizer = torch.optim.AdamW(guide.parameters(), lr=6e-3)
    losses = []
    with watch(guide) as dbg:
        for i in range(700):
            x, room = visitors(64, taste)
            loss = F.cross_entropy(guide(x), room)
            if on not in ("first_come", "choice_without_weight"):
                loss = loss + 0.02 * 4 * guide.moe.use.square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    x, room = visitors(150, taste)
    with torch.no_grad():
        alone = torch.cat([guide(one[None]) for one in x]).argmax(1)
    return {"loss": losses, "use": guide.moe.use.tolist(), "alone": (alone == room).float().mean().item()}


def harmed(result):
    return sum(result["loss"][-60:]) / 60 > 0.75 or result["alone"] < 0.6
