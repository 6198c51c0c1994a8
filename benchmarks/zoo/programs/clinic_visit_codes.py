"""Readmission risk from the codes of past visits: embed the codes, average them, two layers.

With the patients of the first hospital it worked; the joint table gives NaN in the first epoch.
"""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["division_by_zero"],
    "layers": ["history"],
    "onset": [33, 33],
}
CODES, SLOTS = 80, 12


class CodeAverage(nn.Module):
    def __init__(self, width, at_least):
        super().__init__()
        self.table = nn.Embedding(CODES, width)
        self.at_least = at_least

    def forward(self, codes, used):
        used = used.float()
        total = torch.einsum("ns,nsw->nw", used, self.table(codes))
        return total / used.sum(1, keepdim=True).clamp(min=self.at_least)


class RiskModel(nn.Module):
    def __init__(self, at_least):
        super().__init__()
        self.history = CodeAverage(24, at_least)
        self.hidden = nn.Linear(24 + 2, 32)
        self.risk = nn.Linear(32, 1)

    def forward(self, codes, used, person):
        h = torch.cat([self.history(codes, used), person], 1)
        return self.risk(F.leaky_relu(self.hidden(h))).squeeze(-1)


class Patients(torch.utils.data.Dataset):
    def __init__(self, n):
        self.codes = torch.randint(0, CODES, (n, SLOTS))
        visits = torch.randint(1, SLOTS + 1, (n, 1))
        visits[33 * 32 + 17] = 0  # admitted for the first time
        self.used = torch.arange(SLOTS) < visits
        self.person = torch.randn(n, 2)
        severity = torch.randn(CODES)[self.codes] * self.used
        score = 2 * severity.sum(1) / visits[:, 0].clamp(min=1) ** 0.5 + self.person[:, 0]
        self.back = (score > 0).float()

    def __len__(self):
        return len(self.back)

    def __getitem__(self, i):
        return self.codes[i], self.used[i], self.person[i], self.back[i]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = torch.utils.data.DataLoader(Patients(1600), batch_size=32)
    model = RiskModel(at_least=1.0 if fixed else 0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with watch(model) as dbg:
        for epoch in range(5):
            for codes, used, person, back in loader:
                optimizer.zero_grad()
                loss = F.binary_cross_entropy_with_logits(model(codes, used, person), back)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-40:]) / 40 < 0.5
