"""A small vision transformer on map symbols: patches of four pixels, class token, pre-norm, warmup, label smoothing."""

import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class MapViT(nn.Module):
    def __init__(self, width=40, depth=2, classes=5):
        super().__init__()
        self.patch = nn.Conv2d(1, width, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.pos = nn.Parameter(0.02 * torch.randn(1, 17, width))
        self.blocks = nn.Sequential(*[Block(width, 4) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, picture):
        x = self.patch(picture).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


def symbols(n, stencil):
    kind = torch.randint(0, 5, (n,))
    picture = 0.5 * torch.randn(n, 1, 16, 16)
    place = torch.randint(0, 3, (n, 2)) * 4
    for i, (k, (r, c)) in enumerate(zip(kind.tolist(), place.tolist())):
        picture[i, 0, r : r + 8, c : c + 8] += stencil[k]
    return picture, kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    stencil = 1.0 * torch.randn(5, 8, 8)
    picture, kind = symbols(1500, stencil)
    test, answer = symbols(300, stencil)
    net = MapViT()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.05)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, 1.0, total_iters=40)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    losses = []
    with watch(net) as dbg:
        for step in range(240):
            rows = torch.randint(0, 1500, (24,))
            loss = criterion(net(picture[rows]), kind[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            warmup.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    net.eval()
    with torch.no_grad():
        accuracy = (net(test).argmax(1) == answer).float().mean().item()
    return {"loss": losses, "accuracy": accuracy, "learned": accuracy > 0.85}


def harmed(result):
    return False
