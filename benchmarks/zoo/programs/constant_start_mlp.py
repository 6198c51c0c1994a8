"""Old code initialised all layers with one helper; the wide net fits no better than a net of width one."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["optimizer_instability", "training_wiring"],
    "causes": ["symmetric_init"],
    "layers": ["l1", "l2"],
    "onset": [0, 0],
}


class Wide(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.l1 = nn.Linear(8, width)
        self.l2 = nn.Linear(width, width)
        self.l3 = nn.Linear(width, 1)

    def forward(self, x):
        return self.l3(nn.functional.softplus(self.l2(nn.functional.softplus(self.l1(x)))))[:, 0]


def reset(net, random):
    for m in net.modules():
        if isinstance(m, nn.Linear):
            if random:
                nn.init.xavier_uniform_(m.weight)
            else:
                nn.init.constant_(m.weight, 1 / m.in_features)
            nn.init.zeros_(m.bias)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(4096, 8)
    y = x[:, 0].abs() + x[:, 1] * x[:, 2] - torch.relu(x[:, 3] + x[:, 4])
    y = (y - y.mean()) / y.std()
    net = Wide()
    reset(net, random=fixed)
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    losses = []
    with watch(net) as dbg:
        for epoch in range(12):
            for rows in torch.randperm(4096).split(64):
                loss = nn.functional.mse_loss(net(x[rows]), y[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                dbg.record_loss(losses[-1])
    return {"loss": losses, "last": sum(losses[-40:]) / 40}


def harmed(result):
    return result["last"] > 0.35
