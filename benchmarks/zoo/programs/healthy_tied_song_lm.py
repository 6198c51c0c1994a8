"""A GRU language model over song chords whose output matrix is the transposed embedding; gradients clipped."""

import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
CHORDS = 36


class ChordLM(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.encoder = nn.Embedding(CHORDS, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.decoder = nn.Linear(width, CHORDS)
        self.decoder.weight = self.encoder.weight
        nn.init.normal_(self.encoder.weight, std=0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, chords):
        states, _ = self.gru(self.encoder(chords))
        return self.decoder(self.dropout(states))


def songs(n, length, follow):
    chords = [torch.randint(0, CHORDS, (n,)), torch.randint(0, CHORDS, (n,))]
    for _ in range(length - 2):
        coin = (torch.rand(n) < 0.2).long()
        chords.append(follow[chords[-1], chords[-2] % 2, coin])
    return torch.stack(chords, 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    follow = torch.randint(0, CHORDS, (CHORDS, 2, 2))
    data = songs(1500, 17, follow)
    model = ChordLM()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(350):
            batch = data[torch.randint(0, len(data), (32,))]
            logits = model(batch[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    last = sum(losses[-20:]) / 20
    return {"loss": losses, "last": last, "learned": last < 0.35 * losses[0]}


def harmed(result):
    return False
