"""A stream of tides, read in pieces of ten with the state carried over and cut from the graph at each piece, as truncated
back-propagation asks for."""

import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Stream(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 32, batch_first=True)
        self.next = nn.Linear(32, 1)

    def forward(self, x, state=None):
        h, state = self.rnn(x, state)
        return self.next(h), state


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Stream()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3)
    t = torch.arange(3001.0)
    phase = torch.rand(16, 1) * 6
    tide = ((t / 6 + phase).sin() + 0.5 * (t / 2.7 + 2 * phase).sin() + 0.05 * torch.randn(16, 3001))[..., None]
    state, losses = None, []
    with watch(model) as dbg:
        for i in range(300):
            piece = tide[:, 10 * i : 10 * i + 11]
            guess, state = model(piece[:, :-1], state)
            state = state.detach()
            loss = nn.functional.mse_loss(guess, piece[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": sum(losses[-20:]) / 20 < 0.05}


def harmed(result):
    return False
