"""Coral cover from survey vectors. The validation numbers printed during training are poor and
differ each time for one and the same network; after the last validation the saved model is bad."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["train_mode_in_eval"],
    "layers": [],
    "onset": [29, 30],
}


class CoverNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()
        )
        self.cover = nn.Linear(64, 1)

    def forward(self, survey):
        return self.cover(self.layers(survey)).squeeze(1)


def surveys(n, reef):
    site = torch.randn(n, 24)
    cover = torch.tanh(site @ reef) + 0.5 * site[:, 0]
    return site, cover


@torch.no_grad()
def validate(net, site, cover, mode):
    if mode == "eval":
        net.eval()
    order = cover.argsort()  # shallow reefs first
    total = 0.0
    for rows in order.split(50):
        total += nn.functional.mse_loss(net(site[rows]), cover[rows]).item() / (len(cover) // 50)
    net.train()
    return total


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    reef = torch.randn(24) / 3
    site, cover = surveys(1500, reef)
    held = surveys(500, reef)
    net = CoverNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    losses, val = [], []
    with watch(net) as dbg:
        for epoch in range(10):
            for rows in torch.randperm(1500).split(50):
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(net(site[rows]), cover[rows])
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            val.append(validate(net, *held, mode="eval" if fixed else None))
    return {"loss": losses, "val": val}


def harmed(result):
    return result["val"][-1] > 0.12
