"""Adding problem with a hand-written recurrent cell. I clip at 1.0 since the norm explodes now and then,
but the loss still shoots up and it ends worse than predicting the mean."""
import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["training_wiring", "exploding_gradients", "optimizer_instability"],
    "causes": ["clip_after_step"],
    "layers": [],
    "onset": [0, 0],
}


class IRNNCell(nn.Module):
    """ReLU recurrence started at the identity."""

    def __init__(self, n_in, n_hid):
        super().__init__()
        self.W_in = nn.Parameter(torch.randn(n_hid, n_in) * 0.3)
        self.W_rec = nn.Parameter(torch.eye(n_hid) * 1.0)
        self.b = nn.Parameter(torch.zeros(n_hid))

    def forward(self, x_t, h):
        return torch.relu(x_t @ self.W_in.T + h @ self.W_rec.T + self.b)


class Adder(nn.Module):
    def __init__(self, n_hid=48):
        super().__init__()
        self.cell = IRNNCell(2, n_hid)
        self.readout = nn.Linear(n_hid, 1)
        self.n_hid = n_hid

    def forward(self, seq):
        h = seq.new_zeros(seq.size(0), self.n_hid)
        for t in range(seq.size(1)):
            h = self.cell(seq[:, t], h)
        return self.readout(h).squeeze(1)


def adding(n, length):
    values = torch.rand(n, length)
    marks = torch.zeros(n, length)
    first = torch.randint(0, length // 2, (n,))
    second = torch.randint(length // 2, length, (n,))
    rows = torch.arange(n)
    marks[rows, first] = 1
    marks[rows, second] = 1
    return torch.stack([values, marks], -1), (values * marks).sum(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rnn = Adder()
    sgd = torch.optim.SGD(rnn.parameters(), lr=0.01, momentum=0.9)
    history = []
    with watch(rnn) as dbg:
        for i in range(700):
            seq, y = adding(64, 30)
            sgd.zero_grad()
            loss = ((rnn(seq) - y) ** 2).mean()
            loss.backward()
            if fixed:
                nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
                sgd.step()
            else:
                sgd.step()
                nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
            dbg.record_loss(loss.item())
            history.append(loss.item())
    return {"loss": history}


def harmed(result):
    return not sum(result["loss"][-40:]) / 40 < 0.1
