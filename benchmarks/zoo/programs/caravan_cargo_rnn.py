"""A ledger lists a caravan's stops; the cargo is written on the first line only. A plain recurrent
network is to name the cargo after sixty stops and guesses at random."""

import torch
from torch import nn

TRUTH = {
    "failures": ["vanishing_gradients", "optimizer_instability"],
    "causes": ["recurrent_vanishing"],
    "layers": ["ledger"],
    "onset": [0, 0],
}
CARGO, TOWNS, STOPS = 4, 12, 60


class LedgerReader(nn.Module):
    def __init__(self, hidden=48, gated=False):
        super().__init__()
        self.line = nn.Embedding(CARGO + TOWNS, 16)
        if gated:
            self.ledger = nn.LSTM(16, hidden, batch_first=True)
            with torch.no_grad():
                self.ledger.bias_ih_l0[hidden : 2 * hidden].fill_(4.0)
                self.ledger.bias_ih_l0[:hidden].fill_(-1.0)
        else:
            self.ledger = nn.RNN(16, hidden, batch_first=True)
        self.cargo = nn.Linear(hidden, CARGO)

    def forward(self, lines):
        states, _ = self.ledger(self.line(lines))
        return self.cargo(states[:, -1])


def ledgers(n):
    cargo = torch.randint(0, CARGO, (n,))
    towns = CARGO + torch.randint(0, TOWNS, (n, STOPS))
    return torch.cat([cargo[:, None], towns], 1), cargo


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    reader = LedgerReader(gated=fixed)
    optimizer = torch.optim.Adam(reader.parameters(), lr=3e-3)
    losses = []
    with watch(reader) as dbg:
        for step in range(250):
            lines, cargo = ledgers(48)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(reader(lines), cargo)
            loss.backward()
            nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.7
