"""Churn model; I shuffle the frame before cutting it into batches. Cross-entropy settles at 0.69, whatever I try."""
import numpy as np
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["labels_unrelated_to_inputs"],
    "layers": [],
    "onset": [0, 0],
}


def customers(rng, n):
    X = rng.standard_normal((n, 14)).astype("float32")
    z = 1.5 * X[:, 0] - X[:, 1] * X[:, 2] + np.abs(X[:, 3]) - 0.8
    return X, (rng.random(n) < 1 / (1 + np.exp(-2.5 * z))).astype("float32")


class Churn(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense1 = nn.Linear(14, 64)
        self.dense2 = nn.Linear(64, 32)
        self.logit = nn.Linear(32, 1)

    def forward(self, X):
        X = nn.functional.elu(self.dense1(X))
        X = nn.functional.elu(self.dense2(X))
        return self.logit(X)[:, 0]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    X, y = customers(rng, 20000)
    order = rng.permutation(len(X))
    X = X[order]
    if fixed:
        y = y[order]
    X, y = torch.from_numpy(X), torch.from_numpy(y)
    model = Churn()
    opt = torch.optim.NAdam(model.parameters(), lr=2e-3)
    bce = nn.BCEWithLogitsLoss()
    hist = []
    with watch(model) as dbg:
        for epoch in range(2):
            for k in range(0, len(X), 64):
                opt.zero_grad()
                loss = bce(model(X[k:k + 64]), y[k:k + 64])
                loss.backward()
                opt.step()
                hist.append(loss.item())
                dbg.record_loss(hist[-1])
    return {"loss": hist}


def harmed(result):
    return sum(result["loss"][-60:]) / 60 > 0.6
