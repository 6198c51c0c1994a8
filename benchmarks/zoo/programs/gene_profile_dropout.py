"""Classifier on noisy gene profiles, heavily regularised by dropout, validated after each epoch.

Validation is best after the first epoch and then falls while the training loss goes to zero,
as if dropout did nothing; a colleague with the same config does not see it.
"""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["eval_mode_in_training"],
    "layers": [],
    "onset": [8, 8],
}


def make_net(genes):
    return nn.Sequential(
        nn.Dropout(0.3), nn.Linear(genes, 256), nn.ReLU(), nn.Dropout(0.75),
        nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.6), nn.Linear(128, 2),
    )


def validate(net, x, y):
    net.eval()
    with torch.no_grad():
        out = net(x)
        return nn.functional.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    genes = 120
    w = torch.zeros(genes)
    w[:12] = torch.randn(12)
    def draw(n):
        x = torch.randn(n, genes)
        y = (x @ w + 2.0 * torch.randn(n) > 0).long()
        return x, y
    x, y = draw(256)
    xv, yv = draw(2000)
    net = make_net(genes)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    losses, val = [], []
    with watch(net) as dbg:
        net.train()
        for epoch in range(70):
            if fixed:
                net.train()
            for rows in torch.randperm(256).split(32):
                loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            val.append(validate(net, xv, yv)[0])
    return {"loss": losses, "val": val, "val_last": val[-1]}


def harmed(result):
    return result["val_last"] > 1.0
