"""A pre-norm transformer labels the parts of addresses; 40 updates of warmup, cosine to a tenth afterwards."""

import math

import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
TOKENS, PARTS, LENGTH = 50, 5, 10


class Parser(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.token = nn.Embedding(TOKENS, width)
        self.place = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 80, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.part = nn.Linear(width, PARTS)

    def forward(self, address):
        return self.part(self.encoder(self.token(address) + self.place))


def addresses(n):
    address = torch.randint(0, TOKENS, (n, LENGTH))
    abroad = address[:, :1] >= 35
    part = torch.where(abroad, (address // 10 + 2) % PARTS, address // 10)
    return address, part


def schedule(update, warm=40, total=360):
    if update < warm:
        return (update + 1) / warm
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (update - warm) / (total - warm)))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Parser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    losses = []
    with watch(model) as dbg:
        for update in range(360):
            address, part = addresses(32)
            loss = nn.functional.cross_entropy(model(address).flatten(0, 1), part.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    model.eval()
    address, part = addresses(500)
    with torch.no_grad():
        accuracy = (model(address).argmax(-1) == part).float().mean().item()
    return {"loss": losses, "accuracy": accuracy, "learned": accuracy > 0.9}


def harmed(result):
    return False
