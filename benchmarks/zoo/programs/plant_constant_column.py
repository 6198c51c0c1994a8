"""Plant data standardised with the statistics of the commissioning week, when one valve was always shut. Loss is
enormous from the first batch and learning never starts."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["data_anomaly", "numerical_error"],
    "causes": ["zero_variance_feature", "unnormalized_input"],
    "layers": [],
    "onset": [0, 0],
}


def week(n, valve_open):
    x = torch.randn(n, 9) * torch.tensor([1, 20, 5, 300, 0.1, 2, 2, 50, 1.0]) + torch.arange(9.0) * 10
    x[:, 6] = 0.0
    if valve_open:
        x[:, 6] = (torch.rand(n) < 0.5).float() * torch.rand(n)
    y = x[:, 0] - 0.05 * x[:, 1] + 0.4 * x[:, 6] + torch.sin(x[:, 2] / 5)
    return x, y


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.seq = nn.Sequential(nn.Linear(9, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, x):
        return self.seq(x).squeeze(-1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    ref, _ = week(500, False)
    x, y = week(3000, True)
    mean, std = ref.mean(0), ref.std(0)
    std = torch.where(std < 1e-6, torch.ones_like(std), std) if fixed else std + 1e-8
    x = (x - mean) / std
    y = (y - y.mean()) / y.std()
    model = Regressor()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    hist = []
    with watch(model) as dbg:
        for epoch in range(6):
            for i in torch.randperm(3000).split(50):
                loss = (model(x[i]) - y[i]).pow(2).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                hist.append(loss.item())
    return {"loss": hist}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.5
