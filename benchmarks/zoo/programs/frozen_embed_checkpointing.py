"""Fine-tuning a small transformer with frozen embeddings and activation checkpointing to save memory. Only the
head learns; torch prints a warning about inputs that I ignored."""
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

ARCHITECTURE = "Transformer"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["checkpoint_without_input_grad"],
    "layers": ["layers.0", "layers.0.self_attn", "layers.0.self_attn.out_proj", "layers.0.linear1", "layers.0.linear2",
               "layers.0.norm1", "layers.0.norm2", "layers.1", "layers"],
    "onset": [0, 0],
}


class Model(nn.Module):
    def __init__(self, d=32, reentrant=True):
        super().__init__()
        self.tok = nn.Embedding(30, d)
        self.pos = nn.Embedding(16, d)
        self.tok.requires_grad_(False)
        self.pos.requires_grad_(False)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2))
        self.head = nn.Linear(d, 2)
        self.reentrant = reentrant

    def forward(self, ids):
        h = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for layer in self.layers:
            h = checkpoint(layer, h, use_reentrant=self.reentrant)
        return self.head(h.mean(1))


def pairs_task(n):
    """Does any token occur twice in a row?"""
    ids = torch.randint(0, 30, (n, 16))
    y = torch.randint(0, 2, (n,))
    where = torch.randint(0, 15, (n,))
    rows = torch.arange(n)
    first = (ids[:, 1:] == ids[:, :-1]).any(1)
    ids[rows, where + 1] = torch.where(y == 1, torch.full((n,), 7), ids[rows, where + 1])
    ids[rows, where] = torch.where(y == 1, torch.full((n,), 3), ids[rows, where])
    del first
    return ids, y


def train(watch, fixed=False, seed=0):
    warnings.simplefilter("ignore")
    torch.manual_seed(seed)
    model = Model(reentrant=not fixed)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(180):
            ids, y = pairs_task(64)
            loss = F.cross_entropy(model(ids), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.45
