"""Two objects of a scene are turned into tokens of a small code book and then into an answer. The reader of the
tokens learns what it can, the part that makes them does nothing."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["training_wiring", "vanishing_gradients"],
    "causes": ["detached_graph"],
    "layers": ["front", "front.0", "front.2", "choose"],
    "onset": [0, 0],
}
CODES = 16


class Reader(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.front = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48))
        self.choose = nn.Linear(48, CODES)
        self.book = nn.Embedding(CODES, 32)
        self.answer = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        self.fixed = fixed

    def token(self, slot):
        score = self.choose(self.front(slot))
        hard = self.book(score.argmax(-1))
        if self.fixed:  # straight through: the soft mixture carries the gradient
            soft = score.softmax(-1) @ self.book.weight
            return soft + (hard - soft).detach()
        return hard

    def forward(self, scene):
        return self.answer(torch.cat([self.token(scene[:, 0]), self.token(scene[:, 1])], -1))


def scenes(n):
    slots = torch.randn(n, 2, 8)
    side = (slots[..., 0] * slots[..., 1] > 0).long()
    return slots, 2 * side[:, 0] + side[:, 1]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Reader(fixed)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(500):
            scene, same = scenes(128)
            loss = F.cross_entropy(model(scene), same)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.7
