"""A tiny bf16 transformer tags ragged token lists; gradients of four to nine unequal micro-batches are summed and divided
by the true number of tokens. From step 400 the effective batch is larger. Linear warmup over the first 60 steps."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Transformer"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
PAD = -100


class TagFormer(nn.Module):
    def __init__(self, vocab=40, d=32, tags=6):
        super().__init__()
        self.word = nn.Embedding(vocab, d)
        self.place = nn.Embedding(12, d)
        self.layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(d)
        self.tag = nn.Linear(d, tags)

    def forward(self, tokens, pad):
        h = self.word(tokens) + self.place(torch.arange(tokens.shape[1]))
        return self.tag(self.norm(self.layer(h, src_key_padding_mask=pad)))


def ragged(table):
    n, longest = int(torch.randint(2, 9, ())), int(torch.randint(4, 13, ()))
    tokens = torch.randint(40, (n, longest))
    length = torch.randint(2, longest + 1, (n, 1))
    pad = torch.arange(longest) >= length
    before = tokens.roll(1, 1)
    before[:, 0] = 0
    tags = (table[tokens] + 2 * (before % 2)) % 6
    return tokens, pad, tags.masked_fill(pad, PAD)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    table = torch.randint(6, (40,))
    net = TagFormer()
    opt = torch.optim.AdamW(net.parameters(), lr=4e-3, betas=(0.9, 0.98))
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 60))
    losses = []
    with watch(net) as dbg:
        for step in range(550):
            parts = [ragged(table) for _ in range(int(torch.randint(2, 4, ())) if step < 400 else 6)]
            count = sum(int((tags != PAD).sum()) for _, _, tags in parts)
            opt.zero_grad()
            total = 0.0
            for tokens, pad, tags in parts:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    logits = net(tokens, pad)
                loss = F.cross_entropy(logits.float().flatten(0, 1), tags.flatten(), ignore_index=PAD, reduction="sum") / count
                loss.backward()
                total += loss.item()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            warm.step()
            losses.append(total)
            dbg.record_loss(total)
    last = sum(losses[-40:]) / 40
    return {"loss": losses, "last": last, "learned": last < 0.6}


def harmed(result):
    return False
