"""Spoken digit strings with a bidirectional LSTM and CTC.

Epoch one shows inf for a batch and nan ever after. The architecture works on another corpus.
"""
import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["numerical_error", "objective_mismatch"],
    "causes": ["infeasible_target"],
    "layers": [],
    "onset": [9, 9],
}
BANDS, DIGITS = 12, 6


class Recognizer(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rnn = nn.LSTM(BANDS, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, DIGITS + 1)

    def forward(self, frames):
        return self.out(self.rnn(frames)[0]).log_softmax(-1)


def corpus(n, voices, max_frames=20):
    frames = 0.3 * torch.randn(n, max_frames, BANDS)
    lengths, texts = [], []
    for i in range(n):
        count = int(torch.randint(2, 5, (1,)))
        text = torch.randint(1, DIGITS + 1, (count,))
        at = 0
        for d in text.tolist():
            hold = int(torch.randint(3, 5, (1,)))
            frames[i, at : at + hold] += voices[d - 1]
            at += hold + 1
        lengths.append(min(at, max_frames))
        texts.append(text)
    return frames, torch.tensor(lengths), texts


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    voices = torch.randn(DIGITS, BANDS)
    frames, lengths, texts = corpus(400, voices)
    lengths[300], texts[300] = 3, torch.randint(1, DIGITS + 1, (7,))
    net = Recognizer()
    ctc = nn.CTCLoss(blank=0)
    opt = torch.optim.Adam(net.parameters(), lr=8e-3)
    losses = []
    order = [i for i in range(400) if not fixed or lengths[i] >= len(texts[i])]
    with watch(net) as dbg:
        for epoch in range(6):
            for s in range(0, len(order), 32):
                pick = order[s : s + 32]
                logp = net(frames[pick]).transpose(0, 1)
                target = torch.cat([texts[i] for i in pick])
                sizes = torch.tensor([len(texts[i]) for i in pick])
                loss = ctc(logp, target, lengths[pick], sizes)
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 5.0)
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-5:]) / 5 < 1.0
