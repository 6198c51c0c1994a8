"""Minerals from Raman spectra, a plain stack ending in nn.Softmax and trained by SGD with label
smoothing. The loss goes down a little and stays close to the log of the number of minerals."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["double_softmax"],
    "layers": ["5", "4"],
    "onset": [0, 0],
}
MINERALS = 8


def spectra(n, peaks):
    mineral = torch.randint(0, MINERALS, (n,))
    x = torch.linspace(0, 1, 50)
    height = 0.5 + torch.rand(n, 3, 1)
    lines = torch.exp(-((x - peaks[mineral][..., None]) ** 2) / 0.002) * height
    return 2 * lines.sum(1) + 0.3 * torch.randn(n, 50), mineral


def build(extra):
    layers = [nn.Linear(50, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, MINERALS)]
    return nn.Sequential(*layers, *extra)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*spectra(1600, torch.rand(MINERALS, 3))), batch_size=40, shuffle=True)
    model = build([] if fixed else [nn.Softmax(dim=1)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [7], gamma=0.3)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    losses = []
    with watch(model) as dbg:
        for epoch in range(9):
            for spectrum, mineral in loader:
                optimizer.zero_grad()
                loss = criterion(model(spectrum), mineral)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            schedule.step()
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.9
