"""Fraud scores from ledger lines. After 600 updates the activation is swapped for a self-written version that
saves memory; values in the forward pass are the same, yet the loss goes up and stays up."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["numerical_error", "training_wiring", "optimizer_instability"],
    "causes": ["custom_backward_wrong"],
    "layers": ["act1", "act2"],
    "onset": [600, 600],
}


class LeanSwish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, form):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        ctx.form = form
        return x * s

    @staticmethod
    def backward(ctx, grad):
        x, s = ctx.saved_tensors
        if ctx.form == "full":
            return grad * (s + x * s * (1 - s)), None
        return grad * (x * s * (1 - s) - s), None


class Swish(nn.Module):
    form = None

    def forward(self, x):
        return nn.functional.silu(x) if self.form is None else LeanSwish.apply(x, self.form)


class FraudNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1 = nn.Linear(20, 64)
        self.act1 = Swish()
        self.lin2 = nn.Linear(64, 32)
        self.act2 = Swish()
        self.score = nn.Linear(32, 1)

    def forward(self, x):
        return self.score(self.act2(self.lin2(self.act1(self.lin1(x))))).squeeze(1)


def lines(n, rule):
    x = torch.randn(n, 20)
    return x, ((x @ rule[0]) * (x @ rule[1]) + 0.5 * (x @ rule[2]) > 0).float()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rule = torch.randn(3, 20) / 20**0.5
    net = FraudNet()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(1300):
            if step == 600:
                net.act1.form = net.act2.form = "full" if fixed else "short"
            x, y = lines(64, rule)
            loss = nn.functional.binary_cross_entropy_with_logits(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    x, y = lines(2000, rule)
    with torch.no_grad():
        acc = ((net(x) > 0) == (y > 0.5)).float().mean().item()
    return {"loss": losses, "accuracy": acc}


def harmed(result):
    return not result["accuracy"] > 0.75
