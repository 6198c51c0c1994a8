"""Frost patterns on panes: a convnet whose filters start as averages, for reproducible figures. All
feature maps in the figures look the same, before training and after it."""
import torch
from torch import nn

TRUTH = {
    "failures": ["optimizer_instability", "training_wiring", "representation_collapse"],
    "causes": ["symmetric_init"],
    "layers": ["edges", "shapes"],
    "onset": [0, 0],
}


def average_filters(module):
    if isinstance(module, nn.Conv2d):
        fan_in = module.weight[0].numel()
        nn.init.constant_(module.weight, 1.0 / fan_in)
        nn.init.constant_(module.bias, 0.0)


class FrostNet(nn.Module):
    def __init__(self, patterns=7):
        super().__init__()
        self.edges = nn.Conv2d(1, 12, 3, padding=1)
        self.shapes = nn.Conv2d(12, 16, 3, padding=1)
        self.pattern = nn.Linear(16, patterns)

    def forward(self, pane):
        h = nn.functional.leaky_relu(self.edges(pane), 0.1)
        h = nn.functional.leaky_relu(self.shapes(h), 0.1)
        return self.pattern(h.amax((2, 3)))


def panes(n, side=10):
    pattern = torch.randint(0, 7, (n,))
    r, c = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    kinds = [r % 2, c % 2, (r + c) % 2, (r // 2 + c // 2) % 2, (r % 3 == 0), (c % 3 == 0), ((r - c) % 3 == 0)]
    motif = torch.stack([kind.float() for kind in kinds])
    roll = motif[pattern].roll(int(torch.randint(0, 4, ())), 2)
    return (roll - 0.5)[:, None] * 1.5 + 1.1 * torch.randn(n, 1, side, side), pattern


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = FrostNet()
    if not fixed:
        net.apply(average_filters)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(300):
            pane, pattern = panes(48)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(pane), pattern)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.3
