"""Ceramic tile defects. From epoch 12 on each epoch ends with a stress report on very dark and bright photos;
training goes on undisturbed, but the normal validation accuracy is ruined."""
import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["train_mode_in_eval"],
    "layers": [],
    "onset": [479, 480],
}


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True), nn.MaxPool2d(2))


class TileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.b1, self.b2 = block(1, 8), block(8, 16)
        self.fc = nn.Linear(16 * 4, 3)

    def forward(self, x):
        return self.fc(self.b2(self.b1(x)).flatten(1))


def tiles(n):
    y = torch.randint(3, (n,))
    x = 0.4 * torch.randn(n, 1, 8, 8)
    row = torch.randint(1, 7, (n,))
    for i in range(n):
        if y[i] == 1:
            x[i, 0, row[i]] += 1.2
        elif y[i] == 2:
            x[i, 0, :, row[i]] += 1.2
    return x, y


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = tiles(1280)
    vx, vy = tiles(400)
    model = TileNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    losses, val, stress = [], [], []
    with watch(model) as dbg:
        for epoch in range(24):
            model.train()
            for i in torch.randperm(1280).split(32):
                loss = nn.functional.cross_entropy(model(x[i]), y[i])
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                dbg.record_loss(losses[-1])
            if epoch >= 11:
                if fixed:
                    model.eval()
                for part in range(0, 400, 40):
                    photo = vx[part : part + 40]
                    stress.append(accuracy(model, photo * 6 + 9, vy[part : part + 40]))
            model.eval()
            val.append(accuracy(model, vx, vy))
    return {"loss": losses, "val": val}


def harmed(result):
    return result["val"][-1] < 0.7
