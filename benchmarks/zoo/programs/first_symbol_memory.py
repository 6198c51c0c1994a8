"""A plain recurrent net must say, at the end of a noisy stream, which symbol opened it.

With streams of ten it works; with sixty it answers at random.
"""
import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["vanishing_gradients", "optimizer_instability"],
    "causes": ["recurrent_vanishing"],
    "layers": ["memory"],
    "onset": [0, 0],
}
SYMBOLS, LENGTH = 4, 60


class Reader(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.memory = nn.RNN(SYMBOLS, hidden)
        self.say = nn.Linear(hidden, SYMBOLS)

    def forward(self, stream):
        states, _ = self.memory(stream)
        return self.say(states[-1])


def streams(n):
    opening = torch.randint(0, SYMBOLS, (n,))
    x = 0.1 * torch.randn(LENGTH, n, SYMBOLS)
    x[0] += 1.5 * torch.eye(SYMBOLS)[opening]
    return x, opening


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    reader = Reader()
    if fixed:
        nn.init.orthogonal_(reader.memory.weight_hh_l0)
        nn.init.zeros_(reader.memory.bias_hh_l0)
    optimizer = torch.optim.RMSprop(reader.parameters(), lr=5e-4)
    losses = []
    with watch(reader) as dbg:
        for step in range(350):
            x, y = streams(64)
            loss = nn.functional.cross_entropy(reader(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        x, y = streams(512)
        accuracy = (reader(x).argmax(1) == y).float().mean().item()
    return {"loss": losses, "accuracy": accuracy}


def harmed(result):
    return result["accuracy"] < 0.6
