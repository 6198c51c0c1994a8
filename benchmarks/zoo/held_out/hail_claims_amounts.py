"""Size of a hail claim from the policy and the storm, trained with SGD on a stream of claim files.
All is well for a while; then the loss shoots up within one step and the model is useless."""

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability"],
    "causes": ["target_outlier"],
    "layers": [],
    "onset": [262, 262],
}

MEAN_EUR, STD_EUR = 1200.0, 500.0


def claim_files(number, fixed):
    """Yield one file of 48 claims after the other: features and euros."""
    taste = torch.randn(10, generator=torch.Generator().manual_seed(99)) / 10**0.5
    for i in range(number):
        policy = torch.randn(48, 10)
        euros = MEAN_EUR + STD_EUR * (torch.sin(2 * policy @ taste) + 0.5 * policy[:, 0])
        euros = euros + 40 * torch.randn(48)
        if i == 262 and not fixed:
            euros[[5, 17, 30]] = 99_999.0  # not settled yet
        yield policy, euros


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
    )
    sgd = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    criterion = nn.MSELoss()
    losses = []
    with watch(net) as dbg:
        for policy, euros in claim_files(340, fixed):
            y = (euros - MEAN_EUR) / STD_EUR
            sgd.zero_grad()
            loss = criterion(net(policy)[:, 0], y)
            loss.backward()
            sgd.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
        with torch.no_grad():
            checks = [
                criterion(net(policy)[:, 0], (euros - MEAN_EUR) / STD_EUR).item()
                for policy, euros in claim_files(8, True)
            ]
    return {"loss": losses, "held_out": sum(checks) / len(checks)}


def harmed(result):
    return not result["held_out"] < 0.3
