"""Bird species from syllable statistics; after 700 updates the net goes on with recordings of a second region
only. The new region is learned, but the old one, which was at 95 percent, is lost."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["optimizer_instability", "representation_collapse", "data_anomaly"],
    "causes": ["catastrophic_forgetting", "input_distribution_shift"],
    "layers": [],
    "onset": [700, 700],
}


class Region:
    def __init__(self):
        self.songs = torch.randn(6, 16)

    def batch(self, n):
        y = torch.randint(6, (n,))
        return self.songs[y] + 0.8 * torch.randn(n, 16), y


def accuracy(net, region):
    x, y = region.batch(1000)
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    north, south = Region(), Region()
    net = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    losses, curve = [], []
    with watch(net) as dbg:
        for step in range(1800):
            if step < 700:
                x, y = north.batch(64)
            elif fixed:
                (xa, ya), (xb, yb) = north.batch(32), south.batch(32)
                x, y = torch.cat([xa, xb]), torch.cat([ya, yb])
            else:
                x, y = south.batch(64)
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
            if step % 100 == 99:
                curve.append(accuracy(net, north))
    return {"loss": losses, "north": curve, "south": accuracy(net, south)}


def harmed(result):
    return result["north"][-1] < 0.6
