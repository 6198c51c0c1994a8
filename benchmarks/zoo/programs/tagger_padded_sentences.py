"""Tagging of short utterances padded to the longest one in the corpus, plain SGD, a dict of tensors per batch.

The loss drops quickly to almost nothing and the accuracy over the whole tensor is 97 %, yet no rare tag is ever found.
"""
import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["padding_in_loss"],
    "layers": [],
    "onset": [0, 0],
}
PAD, VOCAB, TAGS, LONGEST = 0, 60, 7, 48


class BiTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, 24, padding_idx=PAD)
        self.rnn = nn.GRU(24, 24, batch_first=True, bidirectional=True)
        self.tag = nn.Linear(48, TAGS)

    def forward(self, batch):
        return self.tag(self.rnn(self.words(batch["tokens"]))[0])


def corpus(n):
    tokens = torch.zeros(n, LONGEST, dtype=torch.long)
    tags = torch.zeros(n, LONGEST, dtype=torch.long)
    length = torch.randint(3, 8, (n,))
    length[0] = LONGEST
    for i, k in enumerate(length.tolist()):
        tokens[i, :k] = torch.randint(1, VOCAB, (k,))
        previous = torch.cat([torch.zeros(1, dtype=torch.long), tokens[i, : k - 1]])
        tags[i, :k] = 1 + (tokens[i, :k] % 3 + 3 * (previous >= VOCAB // 2).long())
    return {"tokens": tokens, "tags": tags}


def take(data, rows):
    return {k: v[rows] for k, v in data.items()}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    data, test = corpus(1024), corpus(200)
    tagger = BiTagger()
    criterion = nn.CrossEntropyLoss(ignore_index=PAD) if fixed else nn.CrossEntropyLoss()
    opt = torch.optim.SGD(tagger.parameters(), lr=0.5, momentum=0.8)
    losses = []
    with watch(tagger) as dbg:
        for step in range(200):
            batch = take(data, torch.randint(1, 1024, (32,)))
            logits = tagger(batch)
            loss = criterion(logits.view(-1, TAGS), batch["tags"].view(-1))
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    real = test["tags"] != PAD
    with torch.no_grad():
        accuracy = (tagger(test).argmax(-1) == test["tags"])[real].float().mean().item()
    return {"loss": losses, "accuracy": accuracy}


def harmed(result):
    return result["accuracy"] < 0.85
