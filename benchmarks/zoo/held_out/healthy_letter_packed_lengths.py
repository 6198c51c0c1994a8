"""The mood of letters between three and forty words long, packed by length; batches come in buckets
of like length, so that losses and gradients of neighbouring batches differ."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_sequence

ARCHITECTURE = "LSTM / GRU"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class MoodReader(nn.Module):
    def __init__(self, words=100, width=48):
        super().__init__()
        self.embed = nn.Embedding(words, 24)
        self.gru = nn.GRU(24, width)
        self.mood = nn.Linear(width, 1)

    def forward(self, letters):
        packed = pack_sequence([self.embed(x) for x in letters], enforce_sorted=False)
        return self.mood(self.gru(packed)[1][0])[:, 0]


class Post:
    def __init__(self):
        self.weight = torch.randn(100)

    def bucket(self, n=24):
        shortest = [3, 8, 20, 34][int(torch.randint(0, 4, (1,)))]
        letters = [torch.randint(0, 100, (shortest + int(k),)) for k in torch.randint(0, 7, (n,))]
        happy = torch.stack([self.weight[x].sum() > 0 for x in letters]).float()
        return letters, happy


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    post, model = Post(), MoodReader()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses, right = [], []
    with watch(model) as dbg:
        for _ in range(400):
            letters, happy = post.bucket()
            logit = model(letters)
            loss = F.binary_cross_entropy_with_logits(logit, happy)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            right.append(((logit > 0) == happy.bool()).float().mean().item())
    last = sum(right[-60:]) / 60
    return {"loss": losses, "accuracy": last, "learned": last > 0.8}


def harmed(result):
    return False
