"""River level classes from hydrographs. A warm start would help, says a colleague, for the loss
is that of an even guess within a few batches and stays there."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["optimizer_instability", "vanishing_gradients"],
    "causes": ["weight_decay_too_high"],
    "layers": [],
    "onset": [0, 20],
}


class Hydro(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(2, 24, 5, padding=2)
        self.mid = nn.Conv1d(24, 24, 5, padding=2)
        self.fc1, self.fc2 = nn.Linear(24, 32), nn.Linear(32, 4)

    def forward(self, x):
        x = F.leaky_relu(self.stem(x), 0.1)
        x = F.max_pool1d(x, 2)
        x = F.leaky_relu(self.mid(x), 0.1)
        return self.fc2(F.leaky_relu(self.fc1(x.mean(-1)), 0.1))


def groups(model, decay):
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": vectors, "weight_decay": 0.0}, {"params": matrices, "weight_decay": decay}]


def hydrographs(n):
    t = torch.arange(40.0)
    level = torch.randint(0, 4, (n,))
    peak = torch.exp(-((t - 15 - 10 * torch.rand(n, 1)) ** 2) / (8 + 14 * level[:, None]))
    rain = F.pad(peak, (4, 0))[:, :40] + 0.2 * torch.randn(n, 40)
    return torch.stack([peak * 2 + 0.1 * torch.randn(n, 40), rain], 1), level


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Hydro()
    opt = torch.optim.SGD(groups(model, 5e-4 if fixed else 5e-1), lr=0.05, momentum=0.9)
    losses = []
    with watch(model) as dbg:
        for _ in range(400):
            x, level = hydrographs(48)
            loss = F.cross_entropy(model(x), level)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 1.0
