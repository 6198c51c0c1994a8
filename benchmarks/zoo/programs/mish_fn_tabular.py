"""Own memory-saving activation as autograd.Function (x * sigmoid(1.7 x), like GELU). With it the net gets
stuck; with the plain composition of torch functions the same net learns."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["numerical_error", "training_wiring"],
    "causes": ["custom_backward_wrong"],
    "layers": ["body.1", "body.3", "body.5", "body"],
    "onset": [0, 0],
}


class QuickGELUFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(1.702 * x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, grad):
        x, s = ctx.saved_tensors
        return s + 1.702 * x * s * (1 - s)


class QuickGELU(nn.Module):
    def forward(self, x):
        return QuickGELUFn.apply(x)


class PlainQuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Net(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(15, 64), act(), nn.Linear(64, 64), act(), nn.Linear(64, 64), act())
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        return self.head(self.body(x)).flatten()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    X = torch.randn(4096, 15)
    y = torch.sin(X[:, 0] * 1.5) * X[:, 1] + X[:, 2].abs() - 0.5 * X[:, 3] * X[:, 4]
    y = (y - y.mean()) / y.std()
    net = Net(PlainQuickGELU if fixed else QuickGELU)
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    h = []
    with watch(net) as dbg:
        for k in range(500):
            i = torch.randint(0, 4096, (128,))
            loss = nn.functional.mse_loss(net(X[i]), y[i])
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            h.append(loss.item())
    return {"loss": h}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.35
