"""Origin of honey from an infrared panel, each tray of jars standardised for itself as the lab
does it. In the second hundred of trays everything turns NaN."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["data_anomaly", "numerical_error"],
    "causes": ["zero_variance_feature", "nan_in_input"],
    "layers": [],
    "onset": [173, 173],
}

REGIONS, BANDS = 5, 24


class Lab:
    def __init__(self):
        self.profile = torch.randn(REGIONS, BANDS)

    def tray(self, number, jars=40):
        region = torch.randint(0, REGIONS, (jars,))
        reading = 2.0 + 0.4 * self.profile[region] + 0.5 * torch.randn(jars, BANDS)
        if number == 173:
            reading[:, 11] = 0.0  # that lamp was off
        return reading, region


def standardise(reading, eps):
    return (reading - reading.mean(0)) / (reading.std(0) + eps)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    lab = Lab()
    model = nn.Sequential(
        nn.Linear(BANDS, 64),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, REGIONS),
    )
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    losses = []
    eps = 1e-5 if fixed else 0.0
    with watch(model) as dbg:
        for number in range(240):
            reading, region = lab.tray(number)
            logits = model(standardise(reading, eps))
            loss = F.cross_entropy(logits, region)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.8
