"""Recipes: a class for each dish and, from the same trunk, a score that should put liked recipes above
disliked ones by a margin. The classes are right; the order of the scores is random."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "objective_mismatch"],
    "causes": ["constant_loss_term", "detached_loss_term"],
    "layers": [],
    "onset": [0, 0],
}


class RecipeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(30, 64), nn.ReLU())
        self.dish = nn.Linear(64, 5)
        self.taste = nn.Linear(64, 1)

    def forward(self, recipe):
        h = self.trunk(recipe)
        return self.dish(h), self.taste(h).squeeze(1)


def ranking(taste, liked, disliked, margin=1.0):
    return F.relu(margin - (taste[liked] - taste[disliked])).mean()


def cookbook(n, dishes, tongue):
    dish = torch.randint(0, 5, (n,))
    recipe = dishes[dish] + torch.randn(n, 30)
    return recipe, dish, recipe @ tongue


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    dishes, tongue = torch.randn(5, 30), torch.randn(30) / 5
    net = RecipeNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    losses, order = [], []
    with watch(net) as dbg:
        for step in range(300):
            recipe, dish, joy = cookbook(64, dishes, tongue)
            by_joy = joy.argsort(descending=True)
            liked, disliked = by_joy[:32], by_joy[32:]
            logits, taste = net(recipe)
            term = ranking(taste, liked, disliked if fixed else liked)
            loss = F.cross_entropy(logits, dish) + term
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            order.append((taste[liked] > taste[disliked]).float().mean().item())
    return {"loss": losses, "order": sum(order[-30:]) / 30}


def harmed(result):
    return result["order"] < 0.8
