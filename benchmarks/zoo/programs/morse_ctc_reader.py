"""Reading Morse-like pulses with a GRU and CTC. Signals were cut to a common length, and after
some ordinary batches the loss is inf and the weights are gone."""
import torch
from torch import nn

TRUTH = {
    "failures": ["numerical_error", "objective_mismatch"],
    "causes": ["infeasible_target"],
    "layers": [],
    "onset": [38, 38],
}
SYMBOLS, FRAMES = 6, 20


class PulseReader(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.rnn = nn.GRU(4, hidden, bidirectional=True)
        self.symbol = nn.Linear(2 * hidden, SYMBOLS + 1)

    def forward(self, signal):
        return self.symbol(self.rnn(signal)[0]).log_softmax(-1)


def transmit(n, codebook, longest=6):
    text = torch.randint(1, SYMBOLS + 1, (n, longest))
    length = torch.randint(2, longest + 1, (n,))
    signal = 0.2 * torch.randn(FRAMES, n, 4)
    for k in range(longest):
        on = (k < length).float()[:, None]
        signal[3 * k : 3 * k + 2] += on * codebook[text[:, k]]
    return signal, text, length


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    codebook = torch.randn(SYMBOLS + 1, 4) * 1.5
    reader = PulseReader()
    ctc = nn.CTCLoss(zero_infinity=fixed)
    optimizer = torch.optim.Adam(reader.parameters(), lr=8e-3)
    losses = []
    with watch(reader) as dbg:
        for step in range(170):
            signal, text, length = transmit(24, codebook)
            frames = torch.full((24,), FRAMES)
            if step == 38:
                frames[11] = 3  # the transmission broke off
                length[11] = 6
            loss = ctc(reader(signal), text, frames, length)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-10:]) / 10 < 0.6
