"""Knots in veneer sheets from the line scanner, trained on batches as they come off the machine.
It works until one batch; then the loss jumps and hundreds of good sheets do not bring it back."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability"],
    "causes": ["outlier_batch"],
    "layers": [],
    "onset": [305, 305],
}


class Scanner:
    """Sheets of 14 x 14 pixels in counts of the sensor, and the same brought to order one."""

    def __init__(self, sheets=32):
        self.sheets = sheets

    def raw(self):
        grain = torch.randn(self.sheets, 1, 14, 1) * 14
        sheet = 128 + grain + 10 * torch.randn(self.sheets, 1, 14, 14)
        quality = torch.randint(0, 3, (self.sheets,))
        for i, knots in enumerate(quality.tolist()):
            for _ in range(2 * knots):
                r, c = torch.randint(0, 11, (2,)).tolist()
                sheet[i, 0, r : r + 3, c : c + 3] -= 70
        return sheet.clamp(0, 255), quality

    def ready(self):
        sheet, quality = self.raw()
        return (sheet - 128) / 30, quality


class VeneerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 10, 3)
        self.c2 = nn.Conv2d(10, 20, 3)
        self.fc = nn.Linear(20 * 5 * 5, 32)
        self.grade = nn.Linear(32, 3)

    def forward(self, x):
        x = F.relu(self.c2(F.relu(self.c1(x))))
        x = F.avg_pool2d(x, 2).flatten(1)
        return self.grade(F.relu(self.fc(x)))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    scanner, model = Scanner(), VeneerNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    losses = []
    with watch(model) as dbg:
        for step in range(360):
            # The scanner was restarted at noon; its first batch skips the normaliser.
            sheet, quality = scanner.raw() if step == 305 and not fixed else scanner.ready()
            loss = F.cross_entropy(model(sheet), quality)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.75
