"""Two scanners: train on A, look at B every twenty updates, keep the running scores. Batch norm throughout.

Training looks perfect, the score on A's own test set in the final evaluation is poor.
"""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["train_mode_in_eval"],
    "layers": [],
    "onset": [19, 20],
}


def mlp(d, hidden, k):
    layers = []
    for _ in range(2):
        layers += [nn.Linear(d, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.2)]
        d = hidden
    return nn.Sequential(*layers, nn.Linear(d, k))


def scanner(n, protos, gain, shift):
    y = torch.randint(0, len(protos), (n,))
    return gain * (protos[y] + 0.8 * torch.randn(n, protos.shape[1])) + shift, y


@torch.no_grad()
def score(net, x, y, proper):
    if proper:
        net.eval()
    right = torch.cat([net(part).argmax(1) for part in x.split(32)]) == y
    net.train()
    return right.float().mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    protos = torch.randn(6, 24)
    a = scanner(2048, protos, 1.0, 0.0)
    a_test = scanner(500, protos, 1.0, 0.0)
    b = scanner(640, protos, 5.0, 10 * torch.randn(24))
    net = mlp(24, 64, 6)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    losses, on_b = [], []
    with watch(net) as dbg:
        net.train()
        for step in range(300):
            rows = torch.randint(0, 2048, (64,))
            loss = nn.functional.cross_entropy(net(a[0][rows]), a[1][rows])
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            if step % 20 == 19:
                on_b.append(score(net, *b, proper=fixed))
        net.eval()
        with torch.no_grad():
            final = (net(a_test[0]).argmax(1) == a_test[1]).float().mean().item()
    return {"loss": losses, "on_b": on_b, "accuracy": final}


def harmed(result):
    return result["accuracy"] < 0.85
