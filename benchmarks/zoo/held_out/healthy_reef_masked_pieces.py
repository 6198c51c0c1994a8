"""Masked modelling of reef sounds cut into pieces, in bfloat16 autocast with a warm-up. Each step
draws another share of hidden pieces, so the loss jumps about on its way down."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Transformer"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}

PIECES, SIZE = 12, 6


class ReefModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.enter = nn.Linear(SIZE, width)
        self.hidden = nn.Parameter(0.02 * torch.randn(width))
        self.place = nn.Parameter(0.02 * torch.randn(PIECES, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, 2, norm=nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.leave = nn.Linear(width, SIZE)

    def forward(self, pieces, mask):
        x = torch.where(mask[..., None], self.hidden, self.enter(pieces)) + self.place
        return self.leave(self.encoder(x))


def reef(songs, n):
    """Some animal's song, loud or soft, in the noise of the sea."""
    song = songs[torch.randint(0, len(songs), (n,))] * (0.7 + 0.6 * torch.rand(n, 1, 1))
    return song + 0.3 * torch.randn_like(song)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = ReefModel()
    songs = torch.randn(12, PIECES, SIZE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min((i + 1) / 40, 1.0) * max(0.1, 1 - i / 400)
    )
    losses = []
    with watch(model) as dbg:
        for _ in range(350):
            pieces = reef(songs, 32)
            share = float(torch.empty(()).uniform_(0.2, 0.5))
            mask = torch.rand(32, PIECES) < share
            mask[:, 0] |= ~mask.any(1)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                guess = model(pieces, mask)
            loss = F.mse_loss(guess.float()[mask], pieces[mask])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    first, last = sum(losses[:10]) / 10, sum(losses[-30:]) / 30
    return {"loss": losses, "first": first, "last": last, "learned": last < 0.5 * first}


def harmed(result):
    return False
