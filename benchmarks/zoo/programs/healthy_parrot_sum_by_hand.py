"""Next sound of a parrot with reduction='sum', divided by the number of real sounds; padding is ignored by index."""
import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
SOUNDS, PAD = 15, -1


class SoundModel(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.sound = nn.Embedding(SOUNDS + 1, width, padding_idx=SOUNDS)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.next = nn.Linear(width, SOUNDS)

    def forward(self, song):
        return self.next(self.lstm(self.sound(song))[0])


def songs(n, after, longest=14):
    chain = [torch.randint(0, SOUNDS, (n,))]
    for _ in range(longest):
        stray = torch.rand(n) < 0.1
        chain.append(torch.where(stray, torch.randint(0, SOUNDS, (n,)), after[chain[-1]]))
    song = torch.stack(chain, 1)
    heard = torch.arange(longest + 1) < torch.randint(4, longest + 2, (n, 1))
    given = song.masked_fill(~heard, SOUNDS)[:, :-1]
    return given, song.masked_fill(~heard, PAD)[:, 1:]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    after = torch.randperm(SOUNDS)
    model = SoundModel()
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, reduction="sum")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(200):
            given, wanted = songs(32, after)
            total = criterion(model(given).transpose(1, 2), wanted)
            loss = total / (wanted != PAD).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    last = sum(losses[-20:]) / 20
    return {"loss": losses, "last": last, "learned": last < 0.9}


def harmed(result):
    return False
