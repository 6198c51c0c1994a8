"""Sharpness-aware minimisation: two backward passes and a weight nudge per update, gradients doubled on purpose."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kw):
        super().__init__(params, {"rho": rho, **kw})
        self.base = base(self.param_groups, **kw)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def climb(self):
        grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        scale = 0.05 / (torch.stack([g.norm() for g in grads]).norm() + 1e-12)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.state[p]["nudge"] = p.grad * scale
                    p.add_(self.state[p]["nudge"])
        self.zero_grad()

    @torch.no_grad()
    def descend(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(self.state[p]["nudge"])
        self.base.step()
        self.zero_grad()

    def step(self, closure=None):
        raise NotImplementedError


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    centres = torch.randn(8, 16)

    def draw(n):
        y = torch.randint(0, 8, (n,))
        return centres[y] + 0.7 * torch.randn(n, 16), y

    net = nn.Sequential(
        nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)
    )
    sam = SAM(net.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    losses = []
    with watch(net) as dbg:
        for step in range(250):
            x, y = draw(64)
            loss = criterion(net(x), y)
            loss.backward()
            sam.climb()
            criterion(net(x), y).backward()
            sam.descend()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    net.eval()
    x, y = draw(800)
    with torch.no_grad():
        acc = (net(x).argmax(1) == y).float().mean().item()
    return {"loss": losses, "accuracy": acc, "learned": acc > 0.85}


def harmed(result):
    return False
