"""Matrix factorisation of readers and books with RMSprop on squared rating errors.

The error of the last epoch is the error of the first one.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["optimizer_instability"],
    "causes": ["lr_too_low"],
    "layers": [],
    "onset": [0, 0],
}


class LoanFactors(nn.Module):
    def __init__(self, readers, books, rank):
        super().__init__()
        self.reader = nn.Embedding(readers, rank)
        self.book = nn.Embedding(books, rank)
        self.reader_offset = nn.Embedding(readers, 1)
        self.book_offset = nn.Embedding(books, 1)
        for table in (self.reader, self.book):
            nn.init.normal_(table.weight, std=0.3)
        for table in (self.reader_offset, self.book_offset):
            nn.init.zeros_(table.weight)

    def forward(self, who, what):
        match = (self.reader(who) * self.book(what)).sum(-1)
        return match + self.reader_offset(who).squeeze(-1) + self.book_offset(what).squeeze(-1)


class History:
    def __init__(self, readers=120, books=80, rank=3, size=6000):
        taste, theme = torch.randn(readers, rank), torch.randn(books, rank)
        self.who = torch.randint(0, readers, (size,))
        self.what = torch.randint(0, books, (size,))
        score = (taste[self.who] * theme[self.what]).sum(1) + torch.randn(books)[self.what]
        self.stars = score / score.std() + 0.1 * torch.randn(size)

    def batches(self, size):
        for rows in torch.randperm(len(self.who)).split(size):
            yield self.who[rows], self.what[rows], self.stars[rows]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    history = History()
    model = LoanFactors(120, 80, 8)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2 if fixed else 2e-6)
    losses = []
    with watch(model) as dbg:
        for epoch in range(10):
            for who, what, stars in history.batches(200):
                loss = (model(who, what) - stars).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.5
