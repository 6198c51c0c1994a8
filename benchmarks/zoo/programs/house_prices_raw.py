"""House prices (in dollars) from 12 standardised columns. The loss prints 6e10 and barely goes down."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients"],
    "causes": ["unnormalized_target"],
    "layers": [],
    "onset": [0, 0],
}


def houses(n):
    x = torch.randn(n, 12)
    coef = torch.tensor([60, 35, 20, -15, 10, 8, 5, 5, -3, 2, 1, 0.0]) * 1000
    price = 220_000 + x @ coef + 15_000 * x[:, 0] * x[:, 1] + 8_000 * torch.randn(n)
    return x, price.clamp(min=20_000)


class PriceModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(12, 64), nn.LeakyReLU(), nn.Dropout(0.05), nn.Linear(64, 32), nn.LeakyReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.layers(x)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, price = houses(2000)
    mean, std = price[:1600].mean(), price[:1600].std()
    y = ((price - mean) / std if fixed else price)[:, None]
    model = PriceModel()
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    hist = []
    with watch(model) as dbg:
        for epoch in range(16):
            model.train()
            for idx in torch.randperm(1600).split(64):
                optimizer.zero_grad()
                loss = criterion(model(x[idx]), y[idx])
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                hist.append(loss.item())
    model.eval()
    with torch.no_grad():
        out = model(x[1600:]).squeeze(1)
        if fixed:
            out = out * std + mean
        rmse = (out - price[1600:]).pow(2).mean().sqrt().item()
    return {"loss": hist, "rmse": rmse}


def harmed(result):
    return result["rmse"] > 50_000
