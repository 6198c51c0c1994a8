"""A tagger with a hand-written linear-chain CRF marks the fields of bank statement lines.

Lines are short and training is smooth, until a long line turns the loss into inf and then NaN.
"""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["exp_overflow"],
    "layers": ["crf"],
    "onset": [40, 40],
}
WORDS, TAGS = 50, 5


def plain_lse(x, dim):
    return torch.log(torch.exp(x).sum(dim))


class ChainCRF(nn.Module):
    def __init__(self, tags, reduce):
        super().__init__()
        self.move = nn.Parameter(torch.zeros(tags, tags))
        self.reduce = reduce

    def score(self, emission, tags):
        here = emission.gather(-1, tags[..., None]).squeeze(-1).sum(1)
        return here + self.move[tags[:, :-1], tags[:, 1:]].sum(1)

    def partition(self, emission):
        alpha = emission[:, 0]
        for t in range(1, emission.shape[1]):
            alpha = self.reduce(alpha[:, :, None] + self.move[None], 1) + emission[:, t]
        return self.reduce(alpha, 1)

    def forward(self, emission, tags):
        return (self.partition(emission) - self.score(emission, tags)) / emission.shape[1]


class FieldTagger(nn.Module):
    def __init__(self, reduce):
        super().__init__()
        self.words = nn.Embedding(WORDS, 24)
        self.mix = nn.Conv1d(24, 32, 3, padding=1)
        self.emit = nn.Linear(32, TAGS)
        self.crf = ChainCRF(TAGS, reduce)

    def forward(self, words, tags):
        h = F.relu(self.mix(self.words(words).transpose(1, 2))).transpose(1, 2)
        return self.crf(self.emit(h), tags).mean()


def statement(lines, length):
    words = torch.randint(0, WORDS, (lines, length))
    return words, (words + words.roll(1, 1) // 25) % TAGS


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    lengths = torch.randint(5, 9, (220,)).tolist()
    lengths[40] = 140
    model = FieldTagger(torch.logsumexp if fixed else plain_lse)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for length in lengths:
            words, tags = statement(32 if length < 50 else 4, length)
            optimizer.zero_grad()
            loss = model(words, tags)
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-10:]) / 10 < 0.6
