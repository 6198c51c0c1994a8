"""Multi-task network with a shared trunk: a class and a pose are predicted from one image.

The total loss goes down but the pose error stays where it began, whatever weight I give it.
"""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["detached_loss_term", "detached_graph"],
    "layers": ["pose"],
    "onset": [0, 0],
}


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ELU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ELU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        )
        self.kind = nn.Linear(288, 3)
        self.pose = nn.Linear(288, 2)

    def forward(self, x):
        h = self.trunk(x)
        return self.kind(h), self.pose(h)


class MultiTaskLoss:
    def __init__(self, weights, running):
        self.weights, self.running = weights, running

    def __call__(self, kind, pose, y, p):
        terms = {"kind": F.cross_entropy(kind, y), "pose": F.smooth_l1_loss(pose, p)}
        if self.running:
            terms["pose"] = terms["pose"].item()
        return sum(self.weights[k] * v for k, v in terms.items()), terms


def scenes(n):
    y = torch.randint(0, 3, (n,))
    p = 2 * torch.rand(n, 2) - 1
    grid = torch.linspace(-1.5, 1.5, 12)
    dx = (grid[None, :, None] - p[:, :1, None]).abs()
    dy = (grid[None, None, :] - p[:, 1:, None]).abs()
    disk = (dx**2 + dy**2 < 0.3).float()
    box = ((dx < 0.5) & (dy < 0.5)).float()
    bar = ((dx < 0.2) & (dy < 1.0)).float()
    img = torch.stack([disk, box, bar], 1)[torch.arange(n), y]
    return img[:, None] + 0.2 * torch.randn(n, 1, 12, 12), y, p


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y, p = scenes(1024)
    net = TwoHeads()
    criterion = MultiTaskLoss({"kind": 1.0, "pose": 5.0}, running=not fixed)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    total, pose_error = [], []
    with watch(net) as dbg:
        for epoch in range(8):
            for rows in torch.randperm(1024).split(32):
                kind, pose = net(x[rows])
                loss, terms = criterion(kind, pose, y[rows], p[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                total.append(loss.item())
                pose_error.append(float(terms["pose"]))
    return {"loss": total, "pose": pose_error}


def harmed(result):
    return sum(result["pose"][-20:]) / 20 > 0.08
