"""The next event in server logs by a small decoder with its own mask. The loss falls far below that
of the colleague's model, and when used to predict live events it is worthless."""
import math

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["leaky_causal_mask"],
    "layers": ["layers.0.attend", "layers.1.attend"],
    "onset": [0, 0],
}
EVENTS, LENGTH, WIDTH = 20, 20, 40


class Attend(nn.Module):
    def __init__(self, ahead):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("visible", torch.ones(LENGTH, LENGTH).tril(ahead).bool())

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(x).view(n, t, 2, -1).transpose(1, 2).chunk(3, -1)
        score = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~self.visible[:t, :t], -1e9)
        return self.out((score.softmax(-1) @ v).transpose(1, 2).reshape(n, t, WIDTH))


class Layer(nn.Module):
    def __init__(self, ahead):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend = Attend(ahead)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.feed(self.norm2(x))


class EventModel(nn.Module):
    def __init__(self, ahead):
        super().__init__()
        self.event, self.place = nn.Embedding(EVENTS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.Sequential(Layer(ahead), Layer(ahead))
        self.next = nn.Linear(WIDTH, EVENTS)

    def forward(self, events):
        return self.next(self.layers(self.event(events) + self.place.weight[: events.shape[1]]))


def logs(n, follow):
    events = [torch.randint(0, EVENTS, (n,))]
    for _ in range(LENGTH):
        events.append(follow[events[-1], torch.randint(0, 4, (n,))])
    return torch.stack(events, 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    follow = torch.rand(EVENTS, EVENTS).argsort(1)[:, :4]
    model = EventModel(ahead=0 if fixed else 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(250):
            log = logs(32, follow)
            loss = F.cross_entropy(model(log[:, :-1]).flatten(0, 1), log[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 < 1.1 or sum(result["loss"][-20:]) / 20 > 1.7
