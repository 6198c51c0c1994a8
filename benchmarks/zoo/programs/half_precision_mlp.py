"""To save memory the whole network was converted with .half(); trained with Adam as before.

The first loss is normal, the second is nan. With SGD it works.
"""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["numerical_error", "optimizer_instability"],
    "causes": ["optimizer_eps_underflow"],
    "layers": [],
    "onset": [0, 0],
}


def build():
    return nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
    )


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    teacher = torch.randn(20, 4)
    x = torch.randn(2048, 20)
    y = (x @ teacher).argmax(1)
    x = x.half()
    net = build().half()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-4 if fixed else 1e-8)
    losses = []
    with watch(net) as dbg:
        for step in range(250):
            rows = torch.randint(0, 2048, (64,))
            logits = net(x[rows])
            loss = nn.functional.cross_entropy(logits.float(), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-10:]) / 10 < 0.8
