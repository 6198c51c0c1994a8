"""Instruction tuning in small: the loss counts answers only, long conversations are cut to fit.
In the third hundred of steps the loss reads NaN, once, and then for ever."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Transformer"
TRUTH = {
    "failures": ["data_anomaly", "objective_mismatch", "numerical_error"],
    "causes": ["degenerate_targets", "division_by_zero"],
    "layers": [],
    "onset": [214, 214],
}

TOKENS, LONGEST, IGNORE = 40, 24, -100


class Conversations:
    """A question of random tokens, then an answer that repeats its first ones shifted by one."""

    def __init__(self, keep):
        self.keep = keep

    def pack(self, question, answer):
        ids = torch.cat([question, torch.tensor([0]), answer])
        labels = torch.cat([torch.full((len(question) + 1,), IGNORE), answer])
        ids, labels = ids[:LONGEST], labels[:LONGEST]
        space = LONGEST - len(ids)
        return F.pad(ids, (0, space)), F.pad(labels, (0, space), value=IGNORE)

    def batch(self, number, size=8):
        rows = []
        for _ in range(size):
            length = 30 if number == 214 else int(torch.randint(6, 20, (1,)))
            question = torch.randint(1, TOKENS, (length,))
            if self.keep == "end":
                question = question[-(LONGEST - 5) :]
            rows.append(self.pack(question, question[-4:] % (TOKENS - 1) + 1))
        ids, labels = zip(*rows)
        return {"ids": torch.stack(ids), "labels": torch.stack(labels)}


class Assistant(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.token = nn.Embedding(TOKENS, width)
        self.position = nn.Embedding(LONGEST, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 96, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.decoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, TOKENS)

    def forward(self, ids, labels):
        x = self.token(ids) + self.position.weight
        mask = nn.Transformer.generate_square_subsequent_mask(LONGEST)
        logits = self.lm_head(self.norm(self.decoder(x, mask=mask, is_causal=True)))
        wanted = labels[:, 1:]
        counts = (wanted != IGNORE).float()
        log_probs = F.log_softmax(logits[:, :-1], -1)
        each = -log_probs.gather(-1, wanted.clamp(min=0)[..., None])[..., 0]
        return (each * counts).sum() / counts.sum()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    data = Conversations(keep="end" if fixed else "start")
    model = Assistant()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=30)
    losses = []
    with watch(model) as dbg:
        for number in range(280):
            loss = model(**data.batch(number))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            warmup.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 3.2
