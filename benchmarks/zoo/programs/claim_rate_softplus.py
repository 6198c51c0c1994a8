"""Insurance claims as a rate by a link written by hand. After a good while the loss is inf, then nan, with
the data unchanged."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["exp_overflow"],
    "layers": ["link"],
    "onset": [105, 115],
}


class Link(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed

    def forward(self, score):
        if self.fixed:
            return nn.functional.softplus(score)
        return torch.log(1 + torch.exp(score))


class Rate(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
        self.link = Link(fixed)

    def forward(self, policy):
        return self.link(self.body(policy).squeeze(-1))


def policies(n):
    policy = torch.randn(n, 4)
    rate = (3.5 * policy[:, 0].clamp(max=2) + 0.3 * policy[:, 1]).exp().clamp(max=200) * 0.5 + 0.1
    return policy, rate + 0.1 * torch.randn(n)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Rate(fixed)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(500):
            policy, claims = policies(64)
            loss = nn.functional.smooth_l1_loss(model(policy), claims)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    bad = [i for i, v in enumerate(losses) if v != v or v == float("inf")]
    return {"loss": losses, "first_bad": bad[0] if bad else None}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 8.0
