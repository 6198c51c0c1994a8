"""Next-day orders of a bakery from a week of sales. The loss curve is a flat noisy line; the
gradients printed right after backward look fine."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["zero_grad_before_step"],
    "layers": [],
    "onset": [0, 0],
}


class Orders(nn.Module):
    def __init__(self, goods=5, days=7, width=48):
        super().__init__()
        self.week = nn.GRU(goods, width, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.next = nn.Linear(width, goods)

    def forward(self, sales):
        _, last = self.week(sales)
        return self.next(self.drop(last[0]))


def sales(n):
    rate = torch.randn(n, 1, 5)
    trend = torch.linspace(-1, 1, 8)[None, :, None] * torch.randn(n, 1, 5)
    series = rate + trend + 0.1 * torch.randn(n, 8, 5)
    return series[:, :7], series[:, 7]


def validate(model, loader):
    model.eval()
    with torch.no_grad():
        score = sum(nn.functional.l1_loss(model(x), y).item() for x, y in loader) / len(loader)
    model.train()
    return score


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    training = DataLoader(TensorDataset(*sales(1200)), batch_size=40, shuffle=True)
    held = DataLoader(TensorDataset(*sales(200)), batch_size=100)
    model = Orders()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses, score = [], []
    with watch(model) as dbg:
        for epoch in range(7):
            for x, y in training:
                if fixed:
                    optimizer.zero_grad()
                    loss = nn.functional.mse_loss(model(x), y)
                    loss.backward()
                else:
                    loss = nn.functional.mse_loss(model(x), y)
                    loss.backward()
                    optimizer.zero_grad()
                optimizer.step()
                losses.append(loss.item())
                dbg.record_loss(loss.item())
            score.append(validate(model, held))
    return {"loss": losses, "score": score}


def harmed(result):
    return result["score"][-1] > 0.5
