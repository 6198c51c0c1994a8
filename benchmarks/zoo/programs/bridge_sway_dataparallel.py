"""Sway of bridges with nn.DataParallel, as an old script has it; on this machine there is no GPU, so that the
wrapper hands everything to the one module."""

import torch
import torch.nn as nn

ARCHITECTURE = "DataParallel / DDP"
INNER = [f"module.{i}" for i in range(7)] + [str(i) for i in range(7)] + ["module", ""]
FAULTS = {
    "tonnes_beside_metres": {
        "failures": ["data_anomaly", "optimizer_instability", "dead_neurons", "exploding_gradients"],
        "causes": ["unnormalized_input"],
        "layers": INNER,
        "onset": [0, 3],
    },
    "kept_from_a_trial": {
        "failures": ["training_wiring"],
        "causes": ["frozen_parameters"],
        "layers": INNER,
        "onset": [0, 0],
    },
    "step_forgotten": {
        "failures": ["training_wiring"],
        "causes": ["missing_optimizer_step"],
        "layers": [],
        "onset": [0, 0],
    },
    "one_absurd_load": {
        "failures": ["data_anomaly", "optimizer_instability"],
        "causes": ["outlier_batch", "unnormalized_input"],
        "layers": [],
        "onset": [90, 90],
    },
}


def bridges(n):
    x = torch.randn(n, 8)
    y = x[:, 0] * x[:, 1] + 0.7 * x[:, 2].abs() - 0.5 * x[:, 3]
    return x, y[:, None] + 0.05 * torch.randn(n, 1)


def train(watch, fixed=False, seed=0, fault="tonnes_beside_metres", severity=1.0):
    torch.manual_seed(seed)
    on = "" if fixed else fault
    net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    model = nn.DataParallel(net)
    if on == "kept_from_a_trial":
        net[:3].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    x, y = bridges(3000)
    held_x, held_y = bridges(600)
    scale = torch.ones(8)
    if on == "tonnes_beside_metres":
        scale[4:] = 300.0 * severity
    losses = []
    with watch(model) as dbg:
        for step in range(400):
            rows = torch.randint(0, len(x), (32,))
            batch = x[rows] * scale
            if step == 90 and on == "one_absurd_load":
                batch = batch * 4000.0 * severity
            loss = nn.functional.mse_loss(model(batch), y[rows])
            optimizer.zero_grad()
            loss.backward()
            if on != "step_forgotten":
                optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            if step % 20 == 19:
                model.eval()
                with torch.no_grad():
                    held = nn.functional.mse_loss(model(held_x * scale), held_y).item()
                model.train()
    return {"loss": losses, "held": held}


def harmed(result):
    return not result["held"] < 0.1
