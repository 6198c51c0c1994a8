"""A surrogate for a simulation code, 'model.half()' to save memory, everything else left as in the tutorial.

The first loss is fine, from the second on there is only nan.
"""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["numerical_error", "optimizer_instability"],
    "causes": ["optimizer_eps_underflow", "half_precision_underflow"],
    "layers": [],
    "onset": [0, 0],
}


class Surrogate(nn.Module):
    def __init__(self, n_in=8, width=96, n_out=3):
        super().__init__()
        self.inp = nn.Linear(n_in, width)
        self.mid = nn.Linear(width, width)
        self.ln = nn.LayerNorm(width)
        self.out = nn.Linear(width, n_out)

    def forward(self, p):
        h = torch.tanh(self.inp(p))
        h = h + torch.tanh(self.mid(self.ln(h)))
        return self.out(h)


def simulate(p):
    return torch.stack([p[:, 0] * p[:, 1], torch.sin(2 * p[:, 2]) + p[:, 3], (p[:, 4:] ** 2).mean(1) - 1], 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    designs = torch.randn(2000, 8)
    response = simulate(designs)
    dtype = torch.float32 if fixed else torch.float16
    net = Surrogate().to(dtype)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    losses = []
    with watch(net) as dbg:
        for it in range(300):
            i = torch.randint(0, len(designs), (128,))
            pred = net(designs[i].to(dtype))
            loss = nn.functional.mse_loss(pred.float(), response[i])
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-10:]) / 10 < 0.4
