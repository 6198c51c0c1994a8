"""Tunes a language encoder on novels from the top down: the head first, then one layer after the
other joins the optimizer with a smaller learning rate. What is frozen is meant to be."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}

WORDS = 70


class NovelEncoder(nn.Module):
    def __init__(self, width=32, genres=4):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, genres)

    def forward(self, text):
        x = self.words(text)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


def texts(hints, n):
    text = torch.randint(0, WORDS, (n, 12))
    return text, hints[text].sum(1).argmax(-1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    plain = torch.randn(WORDS, 4)
    novel = 0.7 * plain + 0.7 * torch.randn(WORDS, 4)
    model = NovelEncoder()
    pretraining = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(200):
        text, genre = texts(plain, 32)
        pretraining.zero_grad()
        F.cross_entropy(model(text), genre).backward()
        pretraining.step()

    model.requires_grad_(False)
    model.head.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=2e-3, weight_decay=0.01)
    stages = {80: model.layers[1], 160: model.layers[0], 240: model.words}
    losses = []
    with watch(model) as dbg:
        for step in range(400):
            if step in stages:
                stages[step].requires_grad_(True)
                optimizer.add_param_group({"params": stages[step].parameters(), "lr": 1e-3})
            text, genre = texts(novel, 32)
            loss = F.cross_entropy(model(text), genre)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    first, last = sum(losses[:20]) / 20, sum(losses[-30:]) / 30
    return {"loss": losses, "first": first, "last": last, "learned": last < 0.6 * first}


def harmed(result):
    return False
