"""Domain adaptation: the source is labelled, and a moment term should pull the features of source and target
together. Target accuracy is that of a model trained on the source alone."""
import torch
import torch.nn as nn
import torch.nn.functional as F

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["training_wiring", "objective_mismatch"],
    "causes": ["constant_loss_term", "detached_loss_term"],
    "layers": [],
    "onset": [0, 0],
}


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.feat = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())
        self.cls = nn.Linear(16, 4)

    def forward(self, x):
        f = self.feat(x)
        return self.cls(f), f


def coral(a, b):
    mean_gap = (a.mean(0) - b.mean(0)).pow(2).sum()
    ca, cb = torch.cov(a.T), torch.cov(b.T)
    return mean_gap + (ca - cb).pow(2).sum()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    mu = torch.randn(4, 20) * 0.9
    shift = 6 * torch.randn(20)
    net = Shared()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    log = {"loss": [], "align": []}
    with watch(net) as dbg:
        for step in range(500):
            ys, yt = torch.randint(0, 4, (2, 96))
            xs = mu[ys] + torch.randn(96, 20)
            xt = mu[yt] + torch.randn(96, 20) + shift
            logits, fs = net(xs)
            _, ft = net(xt)
            align = coral(fs, ft) if fixed else coral(fs, fs)
            ce = F.cross_entropy(logits, ys)
            loss = ce + 0.5 * align
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            dbg.record_loss(align.item(), "align")
            log["loss"].append(loss.item())
            log["align"].append(align.item())
    with torch.no_grad():
        yt = torch.randint(0, 4, (1000,))
        acc = (net(mu[yt] + torch.randn(1000, 20) + shift)[0].argmax(1) == yt).float().mean().item()
    return log | {"target_acc": acc}


def harmed(result):
    return result["target_acc"] < 0.85
