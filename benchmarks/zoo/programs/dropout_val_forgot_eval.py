"""Validation accuracy of my sensor net is strangely low and differs each time I run it on the same data, while the
training accuracy is fine. Validation files are sorted by class."""
import torch
import torch.nn as nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["train_mode_in_eval"],
    "layers": [],
    "onset": [0, 80],
}


class SensorNet(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(30, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(128, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, classes))

    def forward(self, x):
        return self.net(x)


def measure(n, mu):
    y = torch.randint(0, 6, (n,))
    return mu[y] + 1.5 * torch.randn(n, 30), y


def validate(model, x, y, use_eval):
    if use_eval:
        model.eval()
    right = 0
    with torch.no_grad():
        for k in range(0, len(x), 50):
            right += (model(x[k:k + 50]).argmax(1) == y[k:k + 50]).sum().item()
    if use_eval:
        model.train()
    return right / len(x)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    mu = torch.randn(6, 30)
    x, y = measure(2560, mu)
    vx, vy = measure(600, mu)
    order = vy.argsort()
    vx, vy = vx[order], vy[order]
    model = SensorNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    out = {"loss": [], "val": []}
    with watch(model) as dbg:
        for epoch in range(6):
            for idx in torch.randperm(2560).split(64):
                loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                out["loss"].append(loss.item())
            out["val"].append(validate(model, vx, vy, fixed))
    return out


def harmed(result):
    return result["val"][-1] < 0.7
