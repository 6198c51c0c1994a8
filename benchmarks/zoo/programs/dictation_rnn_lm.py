"""A word-level language model over dictated instructions, after the well-known example script:
an Elman network, plain SGD with its customary large rate, hidden state carried over from window to window.

Within the first pages there is a window from which the perplexity never recovers.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["exploding_gradients", "optimizer_instability", "saturated_activations"],
    "causes": ["missing_gradient_clipping", "lr_too_high"],
    "layers": ["rnn"],
    "onset": [0, 40],
}


class RNNModel(nn.Module):
    def __init__(self, words, width=64, hidden=96):
        super().__init__()
        self.encoder = nn.Embedding(words, width)
        self.rnn = nn.RNN(width, hidden)
        self.decoder = nn.Linear(hidden, words)
        self.hidden = hidden
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, window, state):
        out, state = self.rnn(self.encoder(window), state)
        return self.decoder(out), state


def dictate(count, words, generator):
    """Each word is followed by one of three, chosen by the word two places back."""
    table = torch.randint(0, words, (words, 2, 2), generator=generator)
    coin = torch.randint(0, 2, (count,), generator=generator).tolist()
    text = [0, 1]
    for c in coin:
        text.append(int(table[text[-1], text[-2] % 2, c]))
    return torch.tensor(text)


def batchify(text, columns):
    rows = len(text) // columns
    return text[: rows * columns].view(columns, rows).t().contiguous()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    words, bptt = 50, 35
    data = batchify(dictate(24000, words, generator), 20)
    model = RNNModel(words)
    optimizer = torch.optim.SGD(model.parameters(), lr=4.0)
    criterion = nn.CrossEntropyLoss()
    losses = []
    with watch(model) as dbg:
        for epoch in range(10):
            state = torch.zeros(1, 20, model.hidden)
            for i in range(0, len(data) - 1 - bptt, bptt):
                state = state.detach()
                optimizer.zero_grad()
                logits, state = model(data[i : i + bptt], state)
                loss = criterion(logits.flatten(0, 1), data[i + 1 : i + 1 + bptt].flatten())
                loss.backward()
                if fixed:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 1.5
