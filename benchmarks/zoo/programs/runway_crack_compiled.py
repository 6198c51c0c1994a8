"""Cracks on runway photographs with a compiled convolutional net; the loop calls the compiled module, the tool is
given that module, too."""

import torch
from torch import nn

ARCHITECTURE = "torch.compile"
BODY = ["conv1", "conv2", "conv3", "head", "fc"]
FAULTS = {
    "large_start": {
        "failures": ["exploding_gradients", "optimizer_instability", "dead_neurons", "saturated_activations"],
        "causes": ["init_too_large"],
        "layers": BODY,
        "onset": [0, 0],
    },
    "nan_pixels": {
        "failures": ["data_anomaly", "numerical_error"],
        "causes": ["nan_in_input"],
        "layers": [],
        "onset": [60, 60],
    },
    "long_strides": {
        "failures": ["optimizer_instability", "dead_neurons", "exploding_gradients"],
        "causes": ["lr_too_high"],
        "layers": BODY,
        "onset": [0, 30],
    },
    "never_cleared": {
        "failures": ["training_wiring", "optimizer_instability", "exploding_gradients"],
        "causes": ["missing_zero_grad"],
        "layers": BODY,
        "onset": [0, 3],
    },
    "body_left_out": {
        "failures": ["training_wiring"],
        "causes": ["parameters_not_in_optimizer"],
        "layers": BODY,
        "onset": [0, 0],
    },
    "probabilities_scored": {
        "failures": ["objective_mismatch", "optimizer_instability"],
        "causes": ["double_softmax"],
        "layers": ["", "fc"],
        "onset": [0, 0],
    },
}


class CrackNet(nn.Module):
    def __init__(self, c=8, probabilities=False):
        super().__init__()
        self.conv1 = nn.Conv2d(1, c, 3, padding=1)
        self.conv2 = nn.Conv2d(c, 2 * c, 3, 2, 1)
        self.conv3 = nn.Conv2d(2 * c, 2 * c, 3, 2, 1)
        self.head = nn.Linear(2 * c * 9, 32)
        self.fc = nn.Linear(32, 4)
        self.probabilities = probabilities

    def forward(self, photo):
        h = torch.relu(self.conv1(photo))
        h = torch.relu(self.conv3(torch.relu(self.conv2(h))))
        h = self.fc(torch.relu(self.head(h.flatten(1))))
        return h.softmax(1) if self.probabilities else h


def photos(n, side=12):
    kind = torch.randint(0, 4, (n,))
    picture = 0.8 * torch.randn(n, 1, side, side)
    for i in range(n):
        at, k = int(torch.randint(1, side - 1, ())), int(kind[i])
        if k == 1:
            picture[i, 0, at] += 1.6
        elif k == 2:
            picture[i, 0, :, at] += 1.6
        elif k == 3:
            picture[i, 0].diagonal().add_(1.6)
    return picture, kind


def train(watch, fixed=False, seed=0, fault="large_start", severity=1.0):
    torch.manual_seed(seed)
    on = "" if fixed else fault
    net = CrackNet(probabilities=on == "probabilities_scored")
    if on == "large_start":
        for p in net.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=severity)
    weights = net.fc.parameters() if on == "body_left_out" else net.parameters()
    optimizer = torch.optim.Adam(weights, lr=0.3 * severity if on == "long_strides" else 3e-3)
    if fault == "never_cleared":
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.8)
    model = torch.compile(net, backend="aot_eager" if fault in ("large_start", "nan_pixels") else "eager")
    album, kinds = photos(1500)
    losses = []
    with watch(model) as dbg:
        for step in range(240):
            rows = torch.randint(0, 1300, (32,))
            photo = album[rows]
            if step == 60 and on == "nan_pixels":
                photo[5, 0, 2, 3:5] = float("nan")
            loss = nn.functional.cross_entropy(model(photo), kinds[rows])
            if on != "never_cleared":
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        held = net(album[1300:])
    share = (held.argmax(1) == kinds[1300:]).float().mean().item()
    return {"loss": losses, "share": share, "surprise": nn.functional.cross_entropy(held, kinds[1300:]).item()}


def harmed(result):
    return not (result["share"] > 0.85 and result["surprise"] < 0.5)
