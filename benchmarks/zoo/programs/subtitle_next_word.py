"""Next-word model for subtitles. Lines are padded to the longest of the film; the reported loss is
far better than that of the published model, the generated lines are empty."""
import torch
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["padding_in_loss"],
    "layers": [],
    "onset": [0, 0],
}


class Lines:
    def __init__(self, count, words=60, longest=50, pad=0):
        self.pad = pad
        after = torch.randint(1, words, (words,))
        chain = [torch.randint(1, words, (count,))]
        for _ in range(longest):
            jump = torch.rand(count) < 0.1
            chain.append(torch.where(jump, torch.randint(1, words, (count,)), after[chain[-1]]))
        self.text = torch.stack(chain, 1)
        length = torch.randint(3, 7, (count, 1))
        self.text[torch.arange(longest + 1) >= length] = pad

    def draw(self, n):
        rows = self.text[torch.randint(0, len(self.text), (n,))]
        return rows[:, :-1], rows[:, 1:]


class WordModel(nn.Module):
    def __init__(self, words=60, width=32):
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.next = nn.Linear(width, words)

    def forward(self, text):
        return self.next(self.memory(self.word(text))[0]).transpose(1, 2)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    lines = Lines(2000)
    model = WordModel()
    criterion = nn.CrossEntropyLoss(ignore_index=lines.pad if fixed else -100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    losses, on_words = [], []
    with watch(model) as dbg:
        for step in range(160):
            before, after = lines.draw(32)
            output = model(before)
            loss = criterion(output, after)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            with torch.no_grad():
                on_words.append(nn.functional.cross_entropy(output, after, ignore_index=lines.pad).item())
    return {"loss": losses, "on_words": on_words}


def harmed(result):
    return sum(result["on_words"][-20:]) / 20 > 1.4
