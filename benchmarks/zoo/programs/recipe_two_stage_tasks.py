"""Recipes: cuisine from ingredients; the cooking-time head joins after 400 updates, as planned, with the same
Adam.

Within a few updates of its start the cuisine loss, which was low, is back at chance level and most of what
was learned has to be learned again.
"""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients"],
    "causes": ["stale_second_moment"],
    "layers": ["minutes", "ingredient", "taste", "taste.0", "taste.2", "taste.4", "taste.6"],
    "onset": [400, 412],
}
INGREDIENTS, CUISINES = 80, 6


class RecipeNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.ingredient = nn.EmbeddingBag(INGREDIENTS, width, mode="mean")
        self.taste = nn.Sequential(
            nn.Linear(width, 64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
        )
        self.cuisine = nn.Linear(64, CUISINES)
        self.minutes = nn.Linear(64, 1)

    def forward(self, recipe):
        h = self.taste(self.ingredient(recipe))
        return self.cuisine(h), self.minutes(h).squeeze(-1)


def recipes(n, effort):
    cuisine = torch.randint(0, CUISINES, (n,))
    recipe = torch.randint(0, INGREDIENTS, (n, 9))
    recipe[:, :5] = torch.randint(0, 12, (n, 5)) + 12 * cuisine[:, None]
    minutes = effort[recipe].mean(1)
    return recipe, cuisine, minutes


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    effort = 3 * torch.randn(INGREDIENTS)
    recipe, cuisine, minutes = recipes(4000, effort)
    net = RecipeNet()
    betas = (0.5, 0.95) if fixed else (0.5, 0.9999)
    optimizer = torch.optim.Adam(net.parameters(), lr=6e-3, betas=betas)
    losses, named = [], []
    with watch(net) as dbg:
        for update in range(600):
            rows = torch.randint(0, len(recipe), (64,))
            scores, guess = net(recipe[rows])
            name_loss = F.cross_entropy(scores, cuisine[rows])
            time_loss = F.mse_loss(guess, minutes[rows])
            loss = name_loss + (2.5 * time_loss if update >= 400 else 0.0 * time_loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            named.append(name_loss.item())
    return {"loss": losses, "cuisine_loss": named}


def harmed(result):
    return not sum(result["cuisine_loss"][400:440]) / 40 < 0.4
