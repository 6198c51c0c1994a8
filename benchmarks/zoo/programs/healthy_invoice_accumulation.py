"""Invoice fields by a small convnet over characters; four micro-batches are accumulated for each
update, loss divided by four."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
ACCUMULATE = 4


class FieldNet(nn.Module):
    def __init__(self, characters=30, fields=5):
        super().__init__()
        self.characters = nn.Embedding(characters, 16)
        self.conv = nn.Conv1d(16, 48, 3)
        self.norm = nn.LayerNorm(48)
        self.field = nn.Linear(48, fields)

    def forward(self, text):
        h = torch.relu(self.conv(self.characters(text).transpose(1, 2))).amax(2)
        return self.field(self.norm(h))


def lines(n, triples):
    text = torch.randint(0, 30, (n, 14))
    field = torch.randint(0, 5, (n,))
    at = torch.randint(0, 12, (n,))
    for k in range(3):
        text[torch.arange(n), at + k] = triples[field, k]
    return text, field


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    triples = torch.randint(0, 30, (5, 3))
    loader = DataLoader(TensorDataset(*lines(3200, triples)), batch_size=16, shuffle=True, drop_last=True)
    text, field = lines(500, triples)
    net = FieldNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3)
    losses = []
    with watch(net) as dbg:
        for epoch in range(6):
            total = 0.0
            optimizer.zero_grad()
            for number, (part, label) in enumerate(loader, 1):
                loss = nn.functional.cross_entropy(net(part), label) / ACCUMULATE
                loss.backward()
                total += loss.item()
                if number % ACCUMULATE == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                    dbg.record_loss(total)
                    losses.append(total)
                    total = 0.0
    with torch.no_grad():
        accuracy = (net(text).argmax(1) == field).float().mean().item()
    return {"loss": losses, "accuracy": accuracy, "learned": accuracy > 0.9}


def harmed(result):
    return False
