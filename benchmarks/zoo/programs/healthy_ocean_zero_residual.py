"""Sea temperature by residual blocks whose last layer starts at zero: each block is the identity at first."""
import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 2 * width)
        self.back = nn.Linear(2 * width, width)
        nn.init.zeros_(self.back.weight)
        nn.init.zeros_(self.back.bias)
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x + self.gain * self.back(nn.functional.gelu(self.wide(self.norm(x))))


class SeaModel(nn.Module):
    def __init__(self, inputs=10, width=40, depth=4):
        super().__init__()
        self.enter = nn.Linear(inputs, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.leave = nn.Linear(width, 1)

    def forward(self, x):
        return self.leave(self.blocks(self.enter(x)))


def buoys(n):
    x = torch.randn(n, 10)
    return x, torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] - 0.4 * x[:, 3:4]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = buoys(4000)
    x_test, y_test = buoys(1000)
    model = SeaModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(450):
            rows = torch.randint(0, 4000, (64,))
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        error = nn.functional.mse_loss(model(x_test), y_test).item() / y_test.var().item()
    return {"loss": losses, "unexplained": error, "learned": error < 0.15}


def harmed(result):
    return False
