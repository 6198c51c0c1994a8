"""Incidence per inhabitant as an input, county by county in the order of the file; one county has no inhabitants.

After some fifty good updates the loss is nan for ever.
"""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["data_anomaly", "numerical_error"],
    "causes": ["inf_in_input"],
    "layers": [],
    "onset": [52, 52],
}


class CountyModel(nn.Module):
    def __init__(self, n_static, n_rates):
        super().__init__()
        self.static = nn.Linear(n_static, 24)
        self.rates = nn.Linear(n_rates, 24)
        self.join = nn.Sequential(nn.ELU(), nn.Linear(48, 32), nn.ELU(), nn.Linear(32, 1))

    def forward(self, *, static, rates):
        return self.join(torch.cat([self.static(static), self.rates(rates)], -1)).squeeze(-1)


def read_file(fixed):
    n = 100 * 32
    people = torch.rand(n) * 9e4 + 1e3
    people[52 * 32 + 11] = 0.0
    rate = 2e-3 * torch.exp(0.8 * torch.randn(n, 3))
    cases = rate * people[:, None].clamp(min=1e3)
    static = torch.randn(n, 5)
    target = torch.log(rate / 2e-3).sum(1) + static[:, 0] * static[:, 1]
    incidence = cases / (people[:, None].clamp(min=1e3) if fixed else people[:, None])
    return static, torch.sqrt(incidence / 2e-3) - 1, target


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    static, rates, target = read_file(fixed)
    model = CountyModel(5, 3)
    opt = torch.optim.Adamax(model.parameters(), lr=8e-3)
    history = []
    with watch(model) as dbg:
        for sweep in range(3):
            for at in range(0, len(target), 32):
                cut = slice(at, at + 32)
                loss = nn.functional.huber_loss(model(static=static[cut], rates=rates[cut]), target[cut])
                opt.zero_grad()
                loss.backward()
                opt.step()
                history.append(loss.item())
                dbg.record_loss(history[-1])
    return {"loss": history}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.35
