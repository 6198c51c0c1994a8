"""Clicks on advertisements from hashed fields with sparse tables. The loss begins near 0.7, goes down to about
0.69 and not below, although one click in twelve is far from an even bet."""
import torch
from torch import nn

ARCHITECTURE = "Embedding / factorisation"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["sigmoid_before_logits_loss"],
    "layers": [],
    "onset": [0, 0],
}
BUCKETS, FIELDS = 400, 5


class Clicks(nn.Module):
    def __init__(self, dim=8, link=True):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(BUCKETS, dim, sparse=True) for _ in range(FIELDS))
        self.wide = nn.Embedding(BUCKETS * FIELDS, 1, sparse=True)
        self.deep = nn.Sequential(nn.Linear(FIELDS * dim, 32), nn.PReLU(), nn.Linear(32, 1))
        self.link = link
        nn.init.zeros_(self.wide.weight)

    def forward(self, fields):
        deep = self.deep(torch.cat([t(fields[:, i]) for i, t in enumerate(self.tables)], 1))
        wide = self.wide(fields + torch.arange(FIELDS) * BUCKETS).sum(1)
        score = (deep + wide).squeeze(1)
        return score.sigmoid() if self.link else score


def impressions(n, appeal):
    fields = (torch.rand(n, FIELDS).pow(3) * BUCKETS).long()
    score = appeal.gather(1, fields.T).sum(0) - 3.6
    return fields, torch.bernoulli(score.sigmoid())


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    appeal = torch.randn(FIELDS, BUCKETS)
    model = Clicks(link=not fixed)
    tables = [*model.tables.parameters(), *model.wide.parameters()]
    optimizers = [torch.optim.SparseAdam(tables, lr=1e-2), torch.optim.Adam(model.deep.parameters(), lr=2e-3)]
    criterion = nn.BCEWithLogitsLoss()
    losses = []
    with watch(model) as dbg:
        for _ in range(400):
            fields, clicked = impressions(128, appeal)
            loss = criterion(model(fields), clicked)
            for opt in optimizers:
                opt.zero_grad()
            loss.backward()
            for opt in optimizers:
                opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-40:]) / 40 > 0.5
