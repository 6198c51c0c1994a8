"""Multi-input model: product text (tokens) and table features are joined for a price class.

It ignores the text completely; a model on the table alone is exactly as good.
"""
import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["detached_graph"],
    "layers": ["text", "text.gru", "text.words"],
    "onset": [0, 0],
}


class TextTower(nn.Module):
    def __init__(self, vocab=40, dim=12, out=24):
        super().__init__()
        self.words = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, out, batch_first=True)

    def forward(self, tokens):
        return self.gru(self.words(tokens))[1][-1]


class PriceModel(nn.Module):
    def __init__(self, through_numpy):
        super().__init__()
        self.text = TextTower()
        self.table = nn.Sequential(nn.Linear(5, 24), nn.ReLU())
        self.mix = nn.Linear(48, 48)
        self.out = nn.Linear(48, 4)
        self.through_numpy = through_numpy

    def forward(self, tokens, table):
        text = self.text(tokens)
        if self.through_numpy:
            rows = text.detach().cpu().numpy()
            text = torch.from_numpy(rows / (1e-6 + abs(rows).max(1, keepdims=True)))
        else:
            text = text / (1e-6 + text.abs().amax(1, keepdim=True))
        return self.out(torch.relu(self.mix(torch.cat([text, self.table(table)], 1))))


def products(n):
    tokens = torch.randint(2, 40, (n, 10))
    flag = torch.randint(0, 2, (n,))
    place = torch.randint(0, 5, (n,))
    tokens[torch.arange(n), place] = flag
    table = torch.randn(n, 5)
    y = 2 * flag + (table[:, 0] + table[:, 1] > 0).long()
    return tokens, table, y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    tokens, table, y = products(2048)
    model = PriceModel(through_numpy=not fixed)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for epoch in range(10):
            for rows in torch.randperm(2048).split(64):
                loss = nn.functional.cross_entropy(model(tokens[rows], table[rows]), y[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.35
