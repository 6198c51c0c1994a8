"""Colours of fired glazes from oxide shares. Closure-like helper functions from an older project
run the updates; the model is as good after training as before it."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["zero_grad_before_step"],
    "layers": [],
    "onset": [0, 0],
}


class GlazeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(64, 8) / 8**0.5)
        self.b1 = nn.Parameter(torch.zeros(64))
        self.w2 = nn.Parameter(torch.randn(3, 64) / 64**0.5)
        self.b2 = nn.Parameter(torch.zeros(3))

    def forward(self, oxides):
        return F.linear(F.relu(F.linear(oxides, self.w1, self.b1)), self.w2, self.b2)


def prepare(optimizer, loss):
    """Run backward on a fresh gradient."""
    optimizer.zero_grad(set_to_none=False)
    loss.backward()


def prepare_old(optimizer, loss):
    loss.backward()
    optimizer.zero_grad(set_to_none=False)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    oxides = torch.rand(600, 8)
    oxides = (oxides / oxides.sum(1, keepdim=True) - 0.125) * 12
    colour = torch.tanh(oxides @ torch.randn(8, 3)) + 0.3 * oxides[:, :3] * oxides[:, 3:6]
    model = GlazeNet()
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    decay = torch.optim.lr_scheduler.ExponentialLR(sgd, 0.99)
    ready = prepare if fixed else prepare_old
    errors = []
    with watch(model) as dbg:
        for step in range(250):
            rows = torch.randint(0, 600, (50,))
            loss = F.mse_loss(model(oxides[rows]), colour[rows])
            ready(sgd, loss)
            sgd.step()
            decay.step()
            dbg.record_loss(loss.item())
            errors.append(loss.item())
    return {"loss": errors}


def harmed(result):
    return not sum(result["loss"][-25:]) / 25 < 0.5 * sum(result["loss"][:3]) / 3
