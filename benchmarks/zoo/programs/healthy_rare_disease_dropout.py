"""A hundred and fifty patients, 60 features, dropout of one half at every layer: a noisy loss that
goes down all the same."""

import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def patients(n, weights):
    x = torch.randn(n, 60)
    return x, (x[:, :12] @ weights > 0).float()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    weights = torch.randn(12)
    x, ill = patients(150, weights)
    x_val, ill_val = patients(600, weights)
    net = nn.Sequential(
        nn.Dropout(0.2),
        nn.Linear(60, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(64, 1),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    losses, val = [], []
    with watch(net) as dbg:
        for epoch in range(80):
            net.train()
            for rows in torch.randperm(150).split(30):
                optimizer.zero_grad()
                loss = criterion(net(x[rows]).squeeze(1), ill[rows])
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            net.eval()
            with torch.no_grad():
                val.append(((net(x_val).squeeze(1) > 0) == (ill_val > 0)).float().mean().item())
    return {"loss": losses, "val": val, "learned": val[-1] > 0.72 and sum(losses[-15:]) < 0.5 * 15 * losses[0]}


def harmed(result):
    return False
