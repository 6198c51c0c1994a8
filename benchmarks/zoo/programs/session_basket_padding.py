"""The next basket of a shop session by multi-head attention over padded clicks. After well over a hundred good
batches the loss is nan for ever."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Transformer"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["fully_masked_attention", "masked_nan_gradient"],
    "layers": ["mha"],
    "onset": [130, 130],
}
ITEMS, LENGTH = 30, 8


class Session(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.items = nn.Embedding(ITEMS + 1, width, padding_idx=0)
        self.mha = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm = nn.RMSNorm(width)
        self.out = nn.Linear(width, ITEMS)

    def forward(self, clicks, pad):
        h = self.items(clicks)
        mixed, attention = self.mha(h, h, h, key_padding_mask=pad, need_weights=True)
        h = self.norm(h + mixed).masked_fill(pad[..., None], 0.0)
        return {"scores": self.out(h.sum(1)), "attention": attention}


def collate(sessions, fixed):
    clicks = torch.zeros(len(sessions), LENGTH, dtype=torch.long)
    for row, session in enumerate(sessions):
        clicks[row, : len(session)] = session
    pad = clicks == 0
    if fixed:
        pad[:, 0] = False
    return clicks, pad


def sessions(n, robots):
    out, bought = [], []
    for i in range(n):
        group = torch.randint(0, 3, ()).item()
        length = 0 if robots and i == 5 else torch.randint(2, LENGTH + 1, ()).item()
        out.append(1 + group * 10 + torch.randint(0, 10, (length,)))
        bought.append(group * 10 + (int(out[-1].sum()) % 2 if length else 0))
    return out, torch.tensor(bought)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Session()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(260):
            raw, bought = sessions(24, robots=step == 130)
            clicks, pad = collate(raw, fixed)
            loss = F.cross_entropy(model(clicks, pad)["scores"], bought)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 1.5
