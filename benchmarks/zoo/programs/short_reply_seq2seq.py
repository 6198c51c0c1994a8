"""Encoder-decoder GRU that reverses short strings. Loss drops below 0.3 at once, but it answers with
<pad> for almost everything (most strings are much shorter than the longest)."""
import random

import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["padding_in_loss"],
    "layers": [],
    "onset": [0, 0],
}
PAD, BOS, EOS = 0, 1, 2
VOCAB, MAXLEN = 15, 48


class Encoder(nn.Module):
    def __init__(self, emb, hid):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.gru = nn.GRU(emb, hid, batch_first=True)

    def forward(self, src, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(src), lengths, batch_first=True, enforce_sorted=False)
        _, h = self.gru(packed)
        return h


class Decoder(nn.Module):
    def __init__(self, emb, hid):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.gru = nn.GRU(emb, hid, batch_first=True)
        self.fc_out = nn.Linear(hid, VOCAB)

    def forward(self, tgt, h):
        out, h = self.gru(self.embedding(tgt), h)
        return self.fc_out(out), h


class Seq2Seq(nn.Module):
    def __init__(self, emb=24, hid=64):
        super().__init__()
        self.encoder, self.decoder = Encoder(emb, hid), Decoder(emb, hid)

    def forward(self, src, lengths, tgt_in):
        return self.decoder(tgt_in, self.encoder(src, lengths))[0]


def pad(rows, width):
    return torch.tensor([r + [PAD] * (width - len(r)) for r in rows])


def batch(rng, n):
    words = [[rng.randrange(3, VOCAB) for _ in range(rng.choice([2, 2, 3, 3, 4]))] for _ in range(n)]
    src = pad(words, 5)
    lengths = torch.tensor([len(w) for w in words])
    tgt = pad([[BOS] + w[::-1] + [EOS] for w in words], MAXLEN)
    return src, lengths, tgt


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rng = random.Random(seed)
    model = Seq2Seq()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD) if fixed else nn.CrossEntropyLoss()
    losses = []
    with watch(model) as dbg:
        for step in range(220):
            src, lengths, tgt = batch(rng, 64)
            logits = model(src, lengths, tgt[:, :-1])
            loss = criterion(logits.reshape(-1, VOCAB), tgt[:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        src, lengths, tgt = batch(rng, 300)
        guess = model(src, lengths, tgt[:, :-1]).argmax(-1)
        real = tgt[:, 1:] > EOS
        acc = (guess == tgt[:, 1:])[real].float().mean().item()
    return {"loss": losses, "token_accuracy": acc}


def harmed(result):
    return result["token_accuracy"] < 0.5
