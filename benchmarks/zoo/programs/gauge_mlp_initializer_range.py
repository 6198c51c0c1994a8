"""Seven dense layers on gauge readings; `initializer_range=0.02` and the init hook were copied from a language model.

The loss equals the variance of the target for ages; the same net with torch's own init works at once.
"""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["vanishing_gradients", "optimizer_instability"],
    "causes": ["init_too_small"],
    "layers": ["stack"] + [f"stack.{i}" for i in range(0, 15, 2)],
    "onset": [0, 0],
}
CONFIG = {"d_in": 10, "d_model": 48, "n_layers": 7, "initializer_range": 0.02, "lr": 0.005, "steps": 400}


def build(cfg):
    sizes = [cfg["d_in"]] + [cfg["d_model"]] * cfg["n_layers"]
    mods = []
    for a, b in zip(sizes, sizes[1:]):
        mods += [nn.Linear(a, b), nn.ReLU()]
    mods.append(nn.Linear(sizes[-1], 1))
    net = nn.Sequential()
    net.add_module("stack", nn.Sequential(*mods))

    def _init_weights(m):
        if isinstance(m, nn.Linear):
            if cfg["initializer_range"] is None:
                nn.init.kaiming_normal_(m.weight)
            else:
                m.weight.data.normal_(mean=0.0, std=cfg["initializer_range"])
            m.bias.data.zero_()

    net.apply(_init_weights)
    return net


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    cfg = {**CONFIG, "initializer_range": None} if fixed else CONFIG
    gauges = torch.randn(3000, cfg["d_in"])
    target = gauges[:, :1] * gauges[:, 1:2] + gauges[:, 2:3].abs() - 0.8
    net = build(cfg)
    opt = torch.optim.SGD(net.parameters(), lr=cfg["lr"], momentum=0.9)
    log = []
    with watch(net) as dbg:
        for it in range(cfg["steps"]):
            rows = torch.randint(0, 3000, (100,))
            loss = nn.functional.mse_loss(net(gauges[rows]), target[rows])
            opt.zero_grad()
            loss.backward()
            opt.step()
            log.append(loss.item())
            dbg.record_loss(log[-1])
    return {"loss": log, "final": sum(log[-20:]) / 20}


def harmed(result):
    return not result["final"] < 0.4
