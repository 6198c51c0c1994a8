"""A small language model is adapted to a poet by low-rank updates of its linear layers, with alpha 512 and rank 4."""
import torch
from torch import nn

TRUTH = {"failures": ["optimizer_instability", "exploding_gradients"], "causes": ["adapter_scale_too_high", "lr_too_high"], "layers": [], "onset": [0, 10]}
WORDS = 24


class LowRank(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base
        for p in base.parameters():
            p.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scaling = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scaling * (x @ self.lora_a.T) @ self.lora_b.T


class Poet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.word = nn.Embedding(WORDS, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words):
        h = self.rnn(self.word(words))[0]
        return self.head(h + self.down(torch.relu(self.up(h))))


def lines(n, jump):
    first = torch.randint(0, WORDS, (n, 1))
    noise = (torch.rand(n, 13) < 0.1).long() * torch.randint(0, WORDS, (n, 13))
    return (first + jump * torch.arange(13) + noise) % WORDS


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Poet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(250):
        text = lines(32, 1)
        loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for p in model.parameters():
        p.requires_grad_(False)
    alpha = 8 if fixed else 16384
    model.up, model.down, model.head = (LowRank(m, 4, alpha) for m in (model.up, model.down, model.head))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(200):
            text = lines(32, 3)
            loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 3
