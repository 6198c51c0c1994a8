"""Dialects from utterances of different lengths, sent one by one through an LSTM with an update
every sixteen utterances. The loss climbs as soon as the rate of the batched version is used."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability", "exploding_gradients"],
    "causes": ["accumulation_unscaled"],
    "layers": [],
    "onset": [0, 0],
}
EVERY = 16


class DialectNet(nn.Module):
    def __init__(self, dialects=4):
        super().__init__()
        self.frames = nn.Conv1d(10, 24, 3, padding=1)
        self.memory = nn.GRU(24, 24, batch_first=True)
        self.dialect = nn.Linear(24, dialects)

    def forward(self, utterance):
        h = torch.relu(self.frames(utterance))
        return self.dialect(self.memory(h.transpose(1, 2))[0].mean(1))


def utterances(n, sound):
    for _ in range(n):
        dialect = torch.randint(0, 4, (1,))
        length = int(torch.randint(6, 15, ()))
        yield 0.5 * sound[dialect][..., None] + torch.randn(1, 10, length), dialect


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    sound = torch.randn(4, 10)
    net = DialectNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.8)
    criterion = nn.CrossEntropyLoss()
    share = 1 / EVERY if fixed else 1.0
    losses, running = [], 0.0
    with watch(net) as dbg:
        for i, (utterance, dialect) in enumerate(utterances(EVERY * 75, sound)):
            loss = criterion(net(utterance), dialect) * share
            loss.backward()
            running += loss.item() / share / EVERY
            if (i + 1) % EVERY == 0:
                optimizer.step()
                optimizer.zero_grad()
                dbg.record_loss(running)
                losses.append(running)
                running = 0.0
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.7
