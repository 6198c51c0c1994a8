"""One-step prediction of a glider's state by residual blocks that start near the identity. The first
version of the block predicted well; the leaner one forgets which way the glider turns."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["inplace_on_skip_path"],
    "layers": ["blocks.0", "blocks.0.act", "blocks.1", "blocks.1.act"],
    "onset": [0, 0],
}


class Correction(nn.Module):
    """x plus a small learned correction of it."""

    def __init__(self, size, lean):
        super().__init__()
        self.act = nn.LeakyReLU(0.05, inplace=lean)
        self.one = nn.Linear(size, 32)
        self.two = nn.Linear(32, size)
        nn.init.normal_(self.two.weight, std=0.01)

    def forward(self, x):
        h = self.two(torch.tanh(self.one(self.act(x))))
        return x + h


class Glider(nn.Module):
    def __init__(self, lean):
        super().__init__()
        self.blocks = nn.ModuleList([Correction(6, lean) for _ in range(2)])

    def forward(self, state):
        x = state.clone()
        for block in self.blocks:
            x = block(x)
        return x


def flights(n):
    state = torch.randn(n, 6) * 2
    push = torch.stack([state[:, 3], state[:, 4], state[:, 5], -state[:, 0].sin(), state[:, 1].tanh(), 0 * state[:, 2]], 1)
    return state, state + 0.1 * push


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    now, later = flights(3000)
    model = Glider(lean=not fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(350):
            rows = torch.randint(0, 3000, (64,))
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(now[rows]), later[rows])
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "last": sum(losses[-20:]) / 20}


def harmed(result):
    return not result["last"] < 0.02
