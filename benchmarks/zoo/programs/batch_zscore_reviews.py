"""Two-tower recommender whose scores are standardised within the batch before the loss. Runs fine for the whole
epoch, then the very last batch gives NaN. 1537 rows, batches of 64."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ARCHITECTURE = "Embedding / factorisation"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["single_sample_statistics"],
    "layers": [],
    "onset": [24, 24],
}


class Towers(nn.Module):
    def __init__(self, users=50, items=80, d=16):
        super().__init__()
        self.user = nn.Sequential(nn.Embedding(users, d), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))
        self.item = nn.Sequential(nn.Embedding(items, d), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1)


def ratings(n):
    pu, qi = torch.randn(50, 3), torch.randn(80, 3)
    u, i = torch.randint(0, 50, (n,)), torch.randint(0, 80, (n,))
    r = (pu[u] * qi[i]).sum(1)
    return u, i, (r - r.mean()) / r.std()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*ratings(1537)), batch_size=64, shuffle=True, drop_last=fixed)
    model = Towers()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    hist = []
    with watch(model) as dbg:
        for epoch in range(12):
            for u, i, r in loader:
                s = model(u, i)
                s = (s - s.mean()) / (s.std() + 1e-6)
                loss = ((s - r) ** 2).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                hist.append(loss.item())
                dbg.record_loss(hist[-1])
    return {"loss": hist}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.5
