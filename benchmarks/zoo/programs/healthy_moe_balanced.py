"""A top-1 mixture of experts with a balancing term: some experts idle in some batches, the shares keep moving."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "MoE"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
EXPERTS = 6


class SwitchFFN(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.router = nn.Linear(d, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, hidden), nn.GELU(), nn.Linear(hidden, d)) for _ in range(EXPERTS)
        )

    def forward(self, x):
        prob = self.router(x).softmax(-1)
        gate, chosen = prob.max(-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows = (chosen == e).nonzero().squeeze(1)
            if len(rows):
                out = out.index_add(0, rows, gate[rows, None] * expert(x[rows]))
        share = F.one_hot(chosen, EXPERTS).float().mean(0)
        return out, EXPERTS * (share * prob.mean(0)).sum(), share


class Model(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.inp = nn.Linear(8, d)
        self.norm = nn.LayerNorm(d)
        self.moe = SwitchFFN(d, 32)
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        h = self.inp(x)
        y, aux, share = self.moe(self.norm(h))
        return {"y": self.out(h + y)[:, 0], "aux": aux, "share": share}


def regimes(n):
    kind = torch.randint(0, 4, (n,))
    x = torch.randn(n, 8) * 0.6
    x[torch.arange(n), kind] += 2.5
    y = torch.stack([x[:, 4] * 2, -x[:, 5], x[:, 6] * x[:, 7] * 2, x[:, 4] + x[:, 5]], 1)[torch.arange(n), kind]
    return x, y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Model()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 30))
    losses = []
    with watch(model) as dbg:
        for step in range(400):
            x, y = regimes(160)
            out = model(x)
            task = F.mse_loss(out["y"], y)
            loss = task + 0.02 * out["aux"]
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            warm.step()
            losses.append(task.item())
            dbg.record_loss(loss.item())
    share = out["share"].max().item()
    return {"loss": losses, "share": share, "learned": sum(losses[-20:]) / 20 < 0.2 * losses[0]}


def harmed(result):
    return False
