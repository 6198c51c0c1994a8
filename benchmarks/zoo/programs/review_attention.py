"""Sentence classifier: bidirectional GRU and additive attention over the words.

Good on the training set with big batches, useless when I predict reviews one by one.
"""
import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["softmax_wrong_dim"],
    "layers": ["attention", "attention.norm"],
    "onset": [0, 0],
}


class WordAttention(nn.Module):
    def __init__(self, dim, axis):
        super().__init__()
        self.key = nn.Linear(dim, 24)
        self.query = nn.Linear(24, 1, bias=False)
        self.norm = nn.Softmax(dim=axis)

    def forward(self, h):
        weight = self.norm(self.query(torch.tanh(self.key(h))))
        return (weight * h).sum(1)


class ReviewNet(nn.Module):
    def __init__(self, axis):
        super().__init__()
        self.words = nn.Embedding(80, 16)
        self.gru = nn.GRU(16, 16, batch_first=True, bidirectional=True)
        self.attention = WordAttention(32, axis)
        self.fc = nn.Linear(32, 3)

    def forward(self, tokens):
        h, _ = self.gru(self.words(tokens))
        return self.fc(self.attention(h))


def reviews(n):
    tokens = torch.randint(12, 80, (n, 14))
    y = torch.randint(0, 3, (n,))
    spot = torch.randint(0, 14, (n,))
    tokens[torch.arange(n), spot] = y * 4 + torch.randint(0, 4, (n,))
    return tokens, y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    tokens, y = reviews(2560)
    model = ReviewNet(axis=1 if fixed else 0)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for epoch in range(6):
            for rows in torch.randperm(2560).split(64):
                loss = nn.functional.cross_entropy(model(tokens[rows]), y[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    tokens, y = reviews(200)
    model.eval()
    with torch.no_grad():
        guess = torch.stack([model(t[None])[0].argmax() for t in tokens])
    return {"loss": losses, "single_acc": (guess == y).float().mean().item()}


def harmed(result):
    return result["single_acc"] < 0.8
