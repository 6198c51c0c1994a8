"""Menus translated by a teacher-forced recurrent pair with attention; padded targets are ignored, encoder padding masked."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
WORDS, PAD, START = 20, 0, 1


class Translator(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, width, padding_idx=PAD), nn.Embedding(WORDS, width, padding_idx=PAD)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.word = nn.Linear(2 * width, WORDS)

    def forward(self, source, before):
        memory, last = self.encoder(self.source(source))
        states, _ = self.decoder(self.target(before), last)
        score = torch.bmm(states, memory.mT) / states.shape[-1] ** 0.5
        score = score.masked_fill((source == PAD)[:, None], float("-inf"))
        read = torch.bmm(score.softmax(-1), memory)
        return self.word(torch.cat([states, read], -1))


def menus(n, dictionary):
    source = [torch.randint(2, WORDS, (int(k),)) for k in torch.randint(2, 6, (n,))]
    target = [dictionary[s] for s in source]
    before = [torch.cat([torch.tensor([START]), t[:-1]]) for t in target]
    return [pad_sequence(part, batch_first=True, padding_value=PAD) for part in (source, before, target)]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    dictionary = torch.cat([torch.arange(2), torch.randperm(WORDS - 2) + 2])
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(300):
            source, before, target = menus(48, dictionary)
            logits = model(source, before)
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    last = sum(losses[-20:]) / 20
    return {"loss": losses, "last": last, "learned": last < 0.8}


def harmed(result):
    return False
