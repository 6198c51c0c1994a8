"""Wine prices with a small Trainer. The loss settles near one, the variance of the standardised
prices, and all wines get about the same price; a linear fit in a spreadsheet does far better."""
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["loss_shape_broadcast"],
    "layers": [],
    "onset": [0, 0],
}


class PriceModel(nn.Module):
    def __init__(self, squeeze):
        super().__init__()
        self.region = nn.Embedding(6, 8)
        self.mlp = nn.Sequential(nn.Linear(8 + 7, 48), nn.GELU(), nn.Linear(48, 1))
        self.squeeze = squeeze

    def forward(self, region, chemistry):
        price = self.mlp(torch.cat([self.region(region), chemistry], 1))
        return price.squeeze(-1) if self.squeeze else price


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.criterion = nn.SmoothL1Loss(beta=4.0)
        self.history = []

    def fit(self, loader, epochs, dbg):
        for _ in range(epochs):
            for region, chemistry, price in loader:
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(region, chemistry), price)
                loss.backward()
                self.optimizer.step()
                dbg.record_loss(loss.item())
                self.history.append(loss.item())
        return self.history


def cellar(n):
    region, chemistry = torch.randint(0, 6, (n,)), torch.randn(n, 7)
    price = torch.randn(6)[region] + chemistry @ torch.randn(7) / 2 + (chemistry[:, 0] * 2).sin()
    return region, chemistry, (price - price.mean()) / price.std()


def train(watch, fixed=False, seed=0):
    warnings.filterwarnings("ignore", message="Using a target size")
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*cellar(1280)), batch_size=64, shuffle=True)
    model = PriceModel(squeeze=fixed)
    trainer = Trainer(model, 4e-3)
    with watch(model) as dbg:
        losses = trainer.fit(loader, 16, dbg)
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.06
