"""Picking times in a warehouse. Pretraining on simulated orders runs fine; the fine-tuning loop on real
orders, written later, gets worse with each update until the numbers are absurd."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability", "exploding_gradients"],
    "causes": ["missing_zero_grad"],
    "layers": [],
    "onset": [700, 700],
}


def orders(n, w, real):
    x = torch.randn(n, 9)
    y = (x @ w[0]).tanh() + 0.4 * x @ w[1]
    if real:
        y = y + 0.5 * (x @ w[2]).cos() + 0.2 * torch.randn(n)
    return x, y[:, None]


def pretrain(net, w, steps, dbg, log):
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        x, y = orders(64, w, real=False)
        opt.zero_grad(set_to_none=False)
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        log.append(loss.item())
        dbg.record_loss(log[-1])


def finetune(net, w, steps, dbg, log, clear):
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for _ in range(steps):
        x, y = orders(64, w, real=True)
        if clear:
            opt.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        log.append(loss.item())
        dbg.record_loss(log[-1])


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    w = torch.randn(3, 9) / 3
    net = nn.Sequential(nn.Linear(9, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
    log = []
    with watch(net) as dbg:
        pretrain(net, w, 700, dbg, log)
        finetune(net, w, 700, dbg, log, clear=fixed)
    return {"loss": log, "end": sum(log[-50:]) / 50}


def harmed(result):
    return not result["end"] < 0.3
