"""A basket autoencoder: 400 products of which a basket holds four, most of the input dropped out on top, most targets
zero, a summed loss in the tens. Slow, small gradients, and it learns which products go together."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "VAE / autoencoder"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
PRODUCTS, GROUPS = 400, 20


class Baskets(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.6)
        self.narrow = nn.Linear(PRODUCTS, 48)
        self.wide = nn.Linear(48, PRODUCTS)

    def forward(self, basket):
        return self.wide(torch.tanh(self.narrow(self.drop(F.normalize(basket, dim=-1)))))


def baskets(n, favour):
    group = torch.randint(0, GROUPS, (n,))
    picks = torch.multinomial(favour[group], 4)
    return torch.zeros(n, PRODUCTS).scatter(1, picks, 1.0), group


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    favour = torch.full((GROUPS, PRODUCTS), 0.002)
    for g in range(GROUPS):
        favour[g, g * 20 : g * 20 + 8] = 1.0
    model = Baskets()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-5)
    losses = []
    with watch(model) as dbg:
        for _ in range(500):
            basket, _ = baskets(64, favour)
            loss = -(model(basket).log_softmax(-1) * basket).sum(-1).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            basket, group = baskets(400, favour)
            best = model(basket).topk(5, dim=-1).indices // 20
    hit = (best == group[:, None]).float().mean().item()
    return {"loss": losses, "hit": hit, "learned": hit > 0.8}


def harmed(result):
    return False
