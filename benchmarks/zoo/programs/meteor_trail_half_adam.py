"""Meteor trails in night-camera patches; the whole network is cast to half to fit a small device.
The first loss is fine, the second is NaN, at any learning rate."""
import torch
from torch import nn

TRUTH = {
    "failures": ["numerical_error", "optimizer_instability"],
    "causes": ["optimizer_eps_underflow"],
    "layers": [],
    "onset": [0, 0],
}


def patches(n):
    sky = 0.3 * torch.randn(n, 12, 12)
    trail = torch.randint(0, 2, (n,))
    for i in trail.nonzero().flatten().tolist():
        r = int(torch.randint(0, 12, ()))
        if torch.rand(()) < 0.5:
            sky[i, r] += 0.7
        else:
            sky[i, :, r] += 0.7
    return sky.flatten(1), trail.float()


class TrailNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, sky):
        return self.layers(sky.half()).float().squeeze(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    sky, trail = patches(1024)
    net = TrailNet().half()
    options = {"eps": 1e-3} if fixed else {}
    opt = torch.optim.Adam(net.parameters(), lr=2e-3, **options)
    criterion = nn.BCEWithLogitsLoss()
    losses = []
    with watch(net) as dbg:
        for epoch in range(12):
            for rows in torch.randperm(1024).split(64):
                loss = criterion(net(sky[rows]), trail[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-16:]) / 16 < 0.45
