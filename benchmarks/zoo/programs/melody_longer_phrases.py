"""A plain recurrent net continues melodies. It is trained on short phrases first, then a second loop goes on
with phrases four times longer; there the loss shoots up within a few updates."""
import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["exploding_gradients", "optimizer_instability", "numerical_error"],
    "causes": ["missing_gradient_clipping", "lr_too_high"],
    "layers": [],
    "onset": [600, 640],
}
NOTES = 14


class Composer(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.note = nn.Embedding(NOTES, 16)
        self.rnn = nn.RNN(16, hidden, nonlinearity="relu", batch_first=True)
        self.next = nn.Linear(hidden, NOTES)
        with torch.no_grad():
            self.rnn.weight_hh_l0.copy_(torch.eye(hidden))

    def forward(self, phrase):
        return self.next(self.rnn(self.note(phrase))[0])


def phrases(n, length):
    start = torch.randint(NOTES, (n, 1))
    stride = torch.randint(1, 5, (n, 1))
    t = torch.arange(length + 1)
    line = (start + stride * t + (t % 4 == 3) * 2) % NOTES
    wrong = torch.rand(n, length + 1) < 0.03
    return torch.where(wrong, torch.randint(NOTES, line.shape), line)


def fit(model, opt, dbg, updates, length, losses, max_norm=None):
    for _ in range(updates):
        line = phrases(24, length)
        logits = model(line[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), line[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        if max_norm:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        opt.step()
        losses.append(loss.item())
        dbg.record_loss(losses[-1])


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model, losses = Composer(), []
    opt = torch.optim.SGD(model.parameters(), lr=1.0)
    with watch(model) as dbg:
        fit(model, opt, dbg, 600, 8, losses, max_norm=0.5)
        fit(model, opt, dbg, 500, 32, losses, max_norm=0.5 if fixed else None)
    return {"loss": losses, "before": sum(losses[580:600]) / 20, "after": sum(losses[-20:]) / 20}


def harmed(result):
    return not result["after"] < 1.2
