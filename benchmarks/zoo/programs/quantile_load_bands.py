"""Three quantiles of the heating load, trained with a squared pinball loss. Half way through the loss jumps by
many orders and the bands are useless after it, though the inputs of that day look like all others."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability"],
    "causes": ["target_outlier"],
    "layers": [],
    "onset": [210, 210],
}
QUANTILES = torch.tensor([0.1, 0.5, 0.9])
MISSING = -9999.0


def meter_log(days, per_day=48):
    for day in range(days):
        weather = torch.randn(per_day, 5)
        load = weather[:, 0] - 0.5 * weather[:, 1] * weather[:, 2] + 0.3 * torch.randn(per_day)
        if day == 210:
            load[7:19] = MISSING
        yield weather, load


def clean(batches):
    for weather, load in batches:
        keep = load != MISSING
        yield weather[keep], load[keep]


def pinball(guess, load):
    gap = load[:, None] - guess
    return (torch.where(gap > 0, QUANTILES, 1 - QUANTILES) * gap.square()).mean()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 40), nn.Softplus(), nn.Linear(40, 40), nn.Softplus(), nn.Linear(40, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.8)
    losses = []
    log = meter_log(420)
    with watch(model) as dbg:
        for weather, load in clean(log) if fixed else log:
            loss = pinball(model(weather), load)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.25
