"""LSTM tagger for named entities in chat messages, most of them short.

Loss is near zero after one epoch and token accuracy reads 96 %, yet it finds hardly any entity.
"""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["padding_in_loss"],
    "layers": [],
    "onset": [0, 0],
}
WORDS, TAGS, LONGEST = 300, 9, 100


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 24, padding_idx=0)
        self.lstm = nn.LSTM(24, 24, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.2)
        self.tag = nn.Linear(48, TAGS)

    def forward(self, words):
        h, _ = self.lstm(self.embedding(words))
        return self.tag(self.dropout(h))


def messages(n, gazette):
    words = torch.zeros(n, LONGEST, dtype=torch.long)
    size = torch.randint(2, 6, (n,))
    size[0] = LONGEST
    for i, k in enumerate(size.tolist()):
        words[i, :k] = torch.randint(1, WORDS, (k,))
    tags = gazette[words]
    tags[words == 0] = 0
    return words, tags


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    gazette = torch.randint(1, TAGS, (WORDS,))
    words, tags = messages(1600, gazette)
    model = Tagger()
    opt = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    criterion = nn.CrossEntropyLoss(ignore_index=0) if fixed else nn.CrossEntropyLoss()
    losses = []
    with watch(model) as dbg:
        for epoch in range(4):
            model.train()
            for rows in torch.randperm(1600).split(64):
                scores = model(words[rows])
                loss = criterion(scores.reshape(-1, TAGS), tags[rows].reshape(-1))
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    model.eval()
    words, tags = messages(200, gazette)
    with torch.no_grad():
        hit = (model(words).argmax(-1) == tags)[words > 0].float().mean().item()
    return {"loss": losses, "real_token_acc": hit}


def harmed(result):
    return result["real_token_acc"] < 0.6
