"""Tags words of clinical notes; notes are short and padded to 48. Ninety per cent of all tags are
right after a minute, but hardly any of the words that matter."""

import torch
from torch import nn

ARCHITECTURE = "Transformer"
TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["padding_in_loss"],
    "layers": [],
    "onset": [0, 0],
}

PAD, WORDS, TAGS, LONGEST = 0, 120, 12, 48


def collate(notes):
    words = nn.utils.rnn.pad_sequence([w for w, _ in notes], batch_first=True)
    tags = nn.utils.rnn.pad_sequence([t for _, t in notes], batch_first=True)
    space = LONGEST - words.shape[1]
    return {
        "input_ids": nn.functional.pad(words, (0, space)),
        "labels": nn.functional.pad(tags, (0, space)),
    }


class Clinic:
    """A word's tag hangs on the word and on the one before it."""

    def __init__(self):
        self.table = torch.randint(1, TAGS, (WORDS,))

    def note(self):
        words = torch.randint(1, WORDS, (int(torch.randint(2, 7, (1,))),))
        before = torch.cat([words.new_zeros(1), words[:-1]])
        tags = self.table[words]
        tags = torch.where((before > 0) & (before % 4 == 0), tags % (TAGS - 1) + 1, tags)
        return words, tags


class Tagger(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=PAD)
        self.places = nn.Embedding(LONGEST, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 64, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.tags = nn.Linear(width, TAGS)

    def forward(self, input_ids):
        x = self.words(input_ids) + self.places.weight
        return self.tags(self.norm(self.encoder(x, src_key_padding_mask=input_ids == PAD)))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    clinic, model = Clinic(), Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD if fixed else -100)
    losses, right = [], []
    with watch(model) as dbg:
        for _ in range(350):
            batch = collate([clinic.note() for _ in range(24)])
            logits = model(batch["input_ids"])
            loss = criterion(logits.flatten(0, 1), batch["labels"].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            real = batch["labels"] != PAD
            right.append((logits.argmax(-1) == batch["labels"])[real].float().mean().item())
    return {"loss": losses, "word_accuracy": sum(right[-30:]) / 30}


def harmed(result):
    return result["word_accuracy"] < 0.7
