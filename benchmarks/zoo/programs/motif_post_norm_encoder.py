"""Counts a motif in protein-like strings with a nine-block post-norm transformer, Adam from the first step on.

The loss rises at the start, then sits at the entropy of the labels.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients", "representation_collapse", "vanishing_gradients"],
    "causes": ["missing_warmup", "lr_too_high"],
    "layers": [],
    "onset": [0, 40],
}
RESIDUES, LENGTH, KINDS = 20, 12, 5


class MotifEncoder(nn.Module):
    def __init__(self, width=32, blocks=9):
        super().__init__()
        self.residue = nn.Embedding(RESIDUES, width)
        self.place = nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True) for _ in range(blocks)
        )
        self.family = nn.Linear(width, KINDS)

    def forward(self, chain):
        h = self.residue(chain) + self.place.weight
        for block in self.blocks:
            h = block(h)
        return self.family(h.mean(1))


def chains(n, motif):
    kind = torch.randint(0, KINDS, (n,))
    chain = torch.randint(0, RESIDUES, (n, LENGTH))
    where = torch.rand(n, LENGTH).argsort(1)[:, :4]
    return chain.scatter(1, where, motif[kind]), kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    motif = torch.stack([torch.randperm(RESIDUES)[:4] for _ in range(KINDS)])
    chain, kind = chains(4000, motif)
    model = MotifEncoder()
    peak, ramp, updates = 1e-2, 120, 250
    optimizer = torch.optim.Adam(model.parameters(), lr=peak, betas=(0.9, 0.98))
    losses = []
    with watch(model) as dbg:
        for update in range(updates):
            if fixed:
                for group in optimizer.param_groups:
                    group["lr"] = peak * min(1.0, (update + 1) / ramp)
            rows = torch.randint(0, len(chain), (32,))
            loss = nn.functional.cross_entropy(model(chain[rows]), kind[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 1.2
