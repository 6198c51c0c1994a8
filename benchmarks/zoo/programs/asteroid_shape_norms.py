"""Light curves of asteroids with a convnet full of batch normalisation. Before training the script
prints the error of the untrained network; training is then slow and its result poor."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability", "exploding_gradients", "vanishing_gradients"],
    "causes": ["eval_mode_in_training"],
    "layers": [],
    "onset": [0, 0],
}


def stage(inside, outside):
    return nn.Sequential(nn.Conv1d(inside, outside, 3, bias=False, padding=1), nn.BatchNorm1d(outside), nn.ReLU())


class ShapeNet(nn.Module):
    def __init__(self, depth=7, width=24):
        super().__init__()
        self.stages = nn.Sequential(stage(1, width), *[stage(width, width) for _ in range(depth - 1)])
        self.axes = nn.Linear(width, 2)
        for m in self.modules():
            if isinstance(m, nn.Conv1d):
                nn.init.normal_(m.weight, std=0.05)

    def forward(self, curve):
        return self.axes(self.stages(curve).mean(-1))


def curves(n):
    t = torch.linspace(0, 12.6, 40)
    axes = torch.randn(n, 2)
    light = axes[:, :1] * torch.cos(t) + axes[:, 1:] * torch.cos(2 * t + 0.5)
    return (light + 0.1 * torch.randn(n, 40))[:, None], axes.abs()


def error(net, curve, axes):
    net.eval()
    with torch.no_grad():
        return nn.functional.mse_loss(net(curve), axes).item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    curve, axes = curves(1280)
    held = curves(256)
    net = ShapeNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    with watch(net) as dbg:
        before = error(net, *held)
        if fixed:
            net.train()
        for step in range(300):
            rows = torch.randint(0, 1280, (48,))
            loss = nn.functional.mse_loss(net(curve[rows]), axes[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            dbg.record_loss(loss)
        after = error(net, *held)
    return {"loss": losses, "before": before, "after": after}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.15
