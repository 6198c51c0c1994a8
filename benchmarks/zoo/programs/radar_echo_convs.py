"""Four kinds of radar echo, five stacked convolutions without normalisation, trained with SGD and a plateau
scheduler.

The weights come from an old configuration file. The loss equals log(4) to five digits for the whole run.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["vanishing_gradients", "optimizer_instability"],
    "causes": ["init_too_small"],
    "layers": ["conv1", "conv2", "conv3", "conv4", "conv5"],
    "onset": [0, 0],
}
OLD_CONFIG = {"filler": {"type": "gaussian", "std": 1e-3}}
NEW_CONFIG = {"filler": {"type": "msra"}}


class EchoNet(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 16, 5, padding=2)
        self.conv2 = nn.Conv1d(16, 16, 5, padding=2, stride=2)
        self.conv3 = nn.Conv1d(16, 24, 5, padding=2)
        self.conv4 = nn.Conv1d(24, 24, 5, padding=2, stride=2)
        self.conv5 = nn.Conv1d(24, 24, 5, padding=2)
        self.kind = nn.Linear(24, 4)
        filler = config["filler"]
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4, self.conv5):
            if filler["type"] == "gaussian":
                nn.init.normal_(conv.weight, std=filler["std"])
            else:
                nn.init.kaiming_normal_(conv.weight)
            nn.init.zeros_(conv.bias)

    def forward(self, echo):
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4, self.conv5):
            echo = conv(echo).relu()
        return self.kind(echo.amax(-1))


def echoes(n, length=48):
    kind = torch.randint(0, 4, (n,))
    t = torch.arange(float(length))
    centre = 12 + 24 * torch.rand(n, 1)
    envelope = torch.exp(-((t - centre) ** 2) / 30)
    chirp = torch.cos((0.4 + 0.55 * kind[:, None]) * (t - centre))
    return (2.5 * envelope * chirp + 0.25 * torch.randn(n, length))[:, None], kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    echo, kind = echoes(1200)
    net = EchoNet(NEW_CONFIG if fixed else OLD_CONFIG)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=12, factor=0.5)
    losses = []
    with watch(net) as dbg:
        for epoch in range(12):
            total = 0.0
            for rows in torch.randperm(1200).split(40):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(net(echo[rows]), kind[rows])
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss)
                losses.append(loss.item())
                total += loss.item()
            plateau.step(total)
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.7
