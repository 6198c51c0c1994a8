"""Next-item recommender: attention over the items a user has clicked before.

Runs for a while, then nan in all parameters. It goes on only if I remove the padding mask.
"""
import torch
from torch import nn

ARCHITECTURE = "Transformer"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["fully_masked_attention"],
    "layers": ["attend"],
    "onset": [30, 30],
}
ITEMS, LENGTH, PAD = 60, 8, 0


class SessionModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.items = nn.Embedding(ITEMS + 1, dim, padding_idx=PAD)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, dim))
        self.attend = nn.MultiheadAttention(dim, 4, batch_first=True, dropout=0.1)
        self.norm1 = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, dim))
        self.norm2 = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, ITEMS + 1)

    def forward(self, history, pad):
        x = self.items(history) + self.places
        a, _ = self.attend(x, x, x, key_padding_mask=pad, need_weights=True)
        x = self.norm1(x + a)
        x = self.norm2(x + self.ff(x))
        return self.head(x.mean(1))


def clicks(n):
    taste = torch.randint(0, 6, (n,))
    history = taste[:, None] * 10 + torch.randint(1, 11, (n, LENGTH))
    size = torch.randint(1, LENGTH + 1, (n,))
    history[torch.arange(LENGTH)[None] >= size[:, None]] = PAD
    target = taste * 10 + torch.randint(1, 11, (n,))
    return history, target


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    history, target = clicks(3200)
    history[1930] = PAD
    model = SessionModel()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for epoch in range(5):
            model.train()
            for s in range(0, 3200, 64):
                h = history[s : s + 64]
                pad = h == PAD
                if fixed:
                    pad[:, 0] = False
                loss = nn.functional.cross_entropy(model(h, pad), target[s : s + 64])
                opt.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-10:]) / 10 < 3.0
