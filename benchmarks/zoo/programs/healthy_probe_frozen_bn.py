"""Fine-tuning practice for small data: pretrained trunk frozen with its batch norms kept in eval mode, only the last
block and a new head learn."""
import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem, self.mid, self.last = block(1, 12), block(12, 24), block(24, 32)
        self.head = nn.Linear(32 * 4, classes)

    def forward(self, x):
        return self.head(self.last(self.mid(self.stem(x))).flatten(1))

    def train(self, mode=True):
        super().train(mode)
        self.stem.eval()
        self.mid.eval()
        return self


def tiles(n, proto, ids):
    k = torch.randint(0, len(ids), (n,))
    return proto[ids[k]] + 0.8 * torch.randn(n, 1, 16, 16), k


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    proto = nn.functional.interpolate(torch.randn(12, 1, 5, 5), 16, mode="bilinear")
    old, new = torch.arange(8), torch.arange(8, 12)
    net = Net(8)
    nn.Module.train(net, True)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(120):
        x, y = tiles(64, proto, old)
        opt.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        opt.step()
    net.head = nn.Linear(128, 4)
    for part in (net.stem, net.mid):
        part.requires_grad_(False)
    opt = torch.optim.Adam(filter(lambda p: p.requires_grad, net.parameters()), lr=1e-3)
    losses = []
    with watch(net) as dbg:
        for epoch in range(5):
            net.train()
            for _ in range(50):
                x, y = tiles(32, proto, new)
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            net.eval()
            with torch.no_grad():
                x, y = tiles(200, proto, new)
                acc = (net(x).argmax(1) == y).float().mean().item()
    return {"loss": losses, "acc": acc, "learned": acc > 0.9}


def harmed(result):
    return False
