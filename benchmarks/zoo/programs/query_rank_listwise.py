"""A listwise ranker whose target is each document's share of the query's relevance. One query without any
relevant document comes along and the scores turn to nan."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["numerical_error", "data_anomaly"],
    "causes": ["division_by_zero"],
    "layers": [],
    "onset": [77, 77],
}


class Scorer(nn.Module):
    def __init__(self, features=8):
        super().__init__()
        self.one = nn.Linear(features, 32)
        self.two = nn.Linear(32, 1)

    def forward(self, documents):
        return self.two(nn.functional.gelu(self.one(documents))).squeeze(-1)


def listwise(scores, relevance, fixed):
    whole = relevance.sum(-1, keepdim=True)
    share = relevance / (whole.clamp(min=1e-6) if fixed else whole)
    return -(share * scores.log_softmax(-1)).sum(-1).mean()


def queries(n, weight, step):
    documents = torch.randn(n, 10, 8)
    merit = documents @ weight + 0.3 * torch.randn(n, 10)
    relevance = (merit >= merit.topk(3, dim=1).values[:, -1:]).float() * torch.randint(1, 4, (n, 10))
    if step == 77:
        relevance[4] = 0.0
    return documents, relevance


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    weight = torch.randn(8)
    model = Scorer()
    opt = torch.optim.Adagrad(model.parameters(), lr=5e-2)
    losses, top = [], []
    with watch(model) as dbg:
        for step in range(240):
            documents, relevance = queries(24, weight, step)
            scores = model(documents)
            loss = listwise(scores, relevance, fixed)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item(), name="listwise")
            losses.append(loss.item())
            top.append((relevance.gather(1, scores.argmax(1, keepdim=True)) > 0).float().mean().item())
    return {"loss": losses, "top": top}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 2.0
