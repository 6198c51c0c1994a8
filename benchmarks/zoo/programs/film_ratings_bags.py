"""Explicit film ratings with user, film and genre tables. The loss is a straight line: not noise, not
falling. All settings came from one file that had been used for another product."""
import json

import torch
from torch import nn

ARCHITECTURE = "Embedding / factorisation"
TRUTH = {
    "failures": ["optimizer_instability"],
    "causes": ["lr_too_low"],
    "layers": [],
    "onset": [0, 0],
}
SETTINGS = '{"dim": 16, "batch": 128, "rate": 1e-2, "rate_unit": 1e-4, "steps": 400}'


class Ratings(nn.Module):
    def __init__(self, users, films, genres, dim):
        super().__init__()
        self.user = nn.Embedding(users, dim)
        self.film = nn.Embedding(films, dim)
        self.genre = nn.EmbeddingBag(genres, dim, mode="mean")
        self.offset = nn.Linear(2 * dim, 1)
        for table in (self.user, self.film, self.genre):
            nn.init.normal_(table.weight, std=0.3)

    def forward(self, user, film, genres):
        u, f = self.user(user), self.film(film) + self.genre(genres)
        return (u * f).sum(-1) + self.offset(torch.cat([u, f], -1)).squeeze(-1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    cfg = json.loads(SETTINGS)
    taste, style = torch.randn(80, 3), torch.randn(60, 3)
    tags = torch.randint(0, 12, (60, 3))
    model = Ratings(80, 60, 12, cfg["dim"])
    rate = cfg["rate"] if fixed else cfg["rate"] * cfg["rate_unit"]
    opt = torch.optim.Adam(model.parameters(), lr=rate)
    losses = []
    with watch(model) as dbg:
        for _ in range(cfg["steps"]):
            user, film = torch.randint(0, 80, (cfg["batch"],)), torch.randint(0, 60, (cfg["batch"],))
            stars = (taste[user] * style[film]).sum(-1) / 3**0.5
            loss = nn.functional.mse_loss(model(user, film, tags[film]), stars)
            loss.backward()
            opt.step()
            opt.zero_grad()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.5
