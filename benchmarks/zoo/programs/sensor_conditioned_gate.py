"""A pre-trained trunk gets a side input: the sensor's type shifts the features through a gated adapter that
starts as the identity. The model goes on as if it did not know the sensor."""
import torch
from torch import nn

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["vanishing_gradients", "training_wiring"],
    "causes": ["blocked_zero_init"],
    "layers": ["side", "side.project"],
    "onset": [0, 0],
}


class Side(nn.Module):
    def __init__(self, kinds, width, fixed):
        super().__init__()
        self.table = nn.Embedding(kinds, width)
        self.project = nn.Linear(width, width)
        self.gate = nn.Parameter(torch.zeros(width))
        if not fixed:
            nn.init.zeros_(self.project.weight)
            nn.init.zeros_(self.project.bias)

    def forward(self, h, kind):
        return h + self.gate * self.project(torch.tanh(self.table(kind)))


class Model(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.enter = nn.Linear(6, 48)
        self.side = Side(5, 48, fixed)
        self.rest = nn.Sequential(nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 1))

    def forward(self, x, kind):
        return self.rest(self.side(self.enter(x), kind)).squeeze(-1)


def readings(n):
    x, kind = torch.randn(n, 6), torch.randint(0, 5, (n,))
    bias = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])[kind]
    return x, kind, 0.6 * x[:, 0] * x[:, 1] + bias + 0.05 * torch.randn(n)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Model(fixed)
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    losses = []
    with watch(model) as dbg:
        for _ in range(400):
            x, kind, y = readings(64)
            loss = nn.functional.mse_loss(model(x, kind), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 1.0
