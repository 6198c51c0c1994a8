"""Gaze direction from eye-tracker sequences, two convolutions and Adam. One shuffled batch comes from the
calibration file.

Convergence practically stops at update 70, although the same batch never comes again.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability", "exploding_gradients"],
    "causes": ["outlier_batch"],
    "layers": [],
    "onset": [70, 70],
}


class Recordings(Dataset):
    def __init__(self, n):
        self.gaze = torch.randn(n, 2)
        t = torch.linspace(0, 1, 18)[None, :, None]
        lift = torch.randn(2, 5)
        self.pupil = t * (self.gaze @ lift)[:, None] + 0.3 * torch.randn(n, 18, 5)
        self.calibration = 3e4 * torch.randn(32, 18, 5)

    def __len__(self):
        return len(self.gaze)

    def __getitem__(self, i):
        if i < 0:
            return self.calibration[-i - 1], self.gaze[-i - 1]
        return self.pupil[i], self.gaze[i]


class Order(Sampler):
    def __init__(self, n, batch, with_calibration):
        self.n, self.batch, self.with_calibration = n, batch, with_calibration

    def __iter__(self):
        for number, rows in enumerate(torch.randperm(self.n).split(self.batch)):
            if number == 70 and self.with_calibration:
                rows = -1 - torch.arange(self.batch)
            yield rows.tolist()


class GazeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Conv1d(5, 32, 3, padding=1)
        self.follow = nn.Conv1d(32, 32, 5, padding=2, stride=2)
        self.gaze = nn.Linear(32, 2)

    def forward(self, pupil):
        h = nn.functional.leaky_relu(self.lift(pupil.transpose(1, 2)))
        h = nn.functional.leaky_relu(self.follow(h))
        return self.gaze(h.mean(2))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    data = Recordings(32 * 240)
    loader = DataLoader(data, batch_sampler=Order(len(data), 32, not fixed))
    model = GazeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    curve = []
    with watch(model) as dbg:
        for pupil, gaze in loader:
            loss = nn.functional.mse_loss(model(pupil), gaze)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            curve.append(loss.item())
    return {"loss": curve}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.06
