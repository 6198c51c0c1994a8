"""Slots in short support tickets, padded to a fixed length. The loss is tiny after one epoch, and the
tags of real words are nearly always 'other'."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["padding_in_loss"],
    "layers": [],
    "onset": [0, 0],
}
WORDS, SLOTS, LENGTH, PAD = 200, 12, 60, 0


class SlotTagger(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=PAD)
        self.context = nn.Conv1d(width, width, 3, padding=1)
        self.slot = nn.Linear(width, SLOTS)

    def forward(self, ticket):
        h = self.words(ticket)
        h = h + torch.tanh(self.context(h.transpose(1, 2))).transpose(1, 2)
        return self.slot(h)


def tickets(n, meaning):
    length = torch.randint(2, 6, (n, 1))
    real = torch.arange(LENGTH) < length
    ticket = torch.randint(1, WORDS, (n, LENGTH)) * real
    return ticket, meaning[ticket] * real


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    meaning = torch.randint(1, SLOTS, (WORDS,))
    ticket, slot = tickets(1500, meaning)
    test_ticket, test_slot = tickets(300, meaning)
    model = SlotTagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    options = {"ignore_index": PAD} if fixed else {}
    losses = []
    with watch(model) as dbg:
        for epoch in range(8):
            for rows in torch.randperm(1500).split(50):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(ticket[rows]).flatten(0, 1), slot[rows].flatten(), **options)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    real = test_slot != PAD
    with torch.no_grad():
        right = (model(test_ticket).argmax(-1) == test_slot)[real].float().mean().item()
    return {"loss": losses, "right": right}


def harmed(result):
    return result["right"] < 0.7
