"""Adding up gated flows with a ReLU recurrent net (identity start, as in the paper) and SGD, with norm clipping in the helper.

The log shows sane norms after clipping, yet the loss explodes and the net is thrown far off.
"""
from dataclasses import dataclass

import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["training_wiring", "exploding_gradients", "optimizer_instability", "numerical_error"],
    "causes": ["clip_after_step"],
    "layers": [],
    "onset": [0, 0],
}


@dataclass
class Cfg:
    hidden: int = 48
    length: int = 24
    batch: int = 64
    steps: int = 500
    lr: float = 0.03
    max_norm: float = 0.3


class IRNN(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.core = nn.RNN(2, cfg.hidden, nonlinearity="relu", batch_first=True)
        self.sum_head = nn.Linear(cfg.hidden, 1)
        with torch.no_grad():
            self.core.weight_hh_l0.copy_(torch.eye(cfg.hidden))
            self.core.weight_ih_l0.normal_(std=0.1)
            self.core.bias_hh_l0.zero_()
            self.core.bias_ih_l0.zero_()

    def forward(self, seq):
        _, last = self.core(seq)
        return self.sum_head(last[0]).squeeze(-1)


def make_batch(cfg):
    flow = torch.randn(cfg.batch, cfg.length)
    gate = (torch.rand(cfg.batch, cfg.length) < 0.5).float()
    return torch.stack([flow, gate], -1), (flow * gate).sum(1) / cfg.length**0.5


def apply_update(opt, params, cfg, fixed):
    if fixed:
        nn.utils.clip_grad_norm_(params, cfg.max_norm)
        opt.step()
    else:
        opt.step()
        nn.utils.clip_grad_norm_(params, cfg.max_norm)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    cfg = Cfg()
    net = IRNN(cfg)
    params = list(net.parameters())
    opt = torch.optim.SGD(params, lr=cfg.lr)
    curve = []
    with watch(net) as dbg:
        for _ in range(cfg.steps):
            seq, total = make_batch(cfg)
            opt.zero_grad()
            err = ((net(seq) - total) ** 2).mean()
            err.backward()
            apply_update(opt, params, cfg, fixed)
            dbg.record_loss(err.item())
            curve.append(err.item())
    return {"loss": curve, "final": sum(curve[-20:]) / 20}


def harmed(result):
    return not result["final"] < 0.3
