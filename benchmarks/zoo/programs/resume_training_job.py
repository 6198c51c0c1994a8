"""A job with a time limit is continued from its checkpoint; after the restart the loss leaps up and
the run needs very long to get back to where it was."""
import copy

import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "Embedding / factorisation"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["resume_without_optimizer_state"],
    "layers": [],
    "onset": [0, 0],
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(500, 24)
        self.fc1 = nn.Linear(48, 64)
        self.fc2 = nn.Linear(64, 1)

    def forward(self, pair):
        h = self.emb(pair).flatten(1)
        return self.fc2(torch.tanh(self.fc1(h)))[:, 0]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    factors = torch.randn(500, 3)
    def batch():
        pair = (500 * torch.rand(256, 2) ** 2).long()
        return pair, (factors[pair[:, 0]] * factors[pair[:, 1]]).sum(1).sign() * 0.5 + 0.1 * torch.randn(256)

    def one(net, opt):
        pair, y = batch()
        loss = F.mse_loss(net(pair), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    net = Net()
    opt = torch.optim.Adagrad(net.parameters(), lr=0.1)
    before = [one(net, opt) for _ in range(900)]
    saved = {"net": copy.deepcopy(net.state_dict()), "opt": copy.deepcopy(opt.state_dict())}

    net = Net()
    net.load_state_dict(saved["net"])
    opt = torch.optim.Adagrad(net.parameters(), lr=0.1)
    if fixed:
        opt.load_state_dict(saved["opt"])
    losses = []
    with watch(net) as dbg:
        for _ in range(150):
            losses.append(one(net, opt))
            dbg.record_loss(losses[-1])
    level = sum(before[-30:]) / 30
    return {"loss": losses, "level": level, "ratio": max(losses[:40]) / level}


def harmed(result):
    return result["ratio"] > 1.6
