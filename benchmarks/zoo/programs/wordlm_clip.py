"""Word language model with an LSTM and SGD at a high rate, gradient clipping 0.25 as in the example.

Loss explodes although clipping is on.
"""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["training_wiring", "exploding_gradients"],
    "causes": ["clip_after_step"],
    "layers": [],
    "onset": [0, 0],
}


class WordLM(nn.Module):
    def __init__(self, words=50, dim=32):
        super().__init__()
        self.encoder = nn.Embedding(words, dim)
        self.rnn = nn.LSTM(dim, dim, num_layers=2)
        self.decoder = nn.Linear(dim, words)

    def forward(self, ids, hidden):
        out, hidden = self.rnn(self.encoder(ids), hidden)
        return self.decoder(out), hidden


def stream(n, words=50):
    nxt = torch.stack([torch.randperm(words) for _ in range(2)])
    coin = (torch.rand(n) < 0.85).long()
    ids = [0]
    for c in coin.tolist():
        ids.append(int(nxt[1 - c, ids[-1]]))
    return torch.tensor(ids)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    batch, bptt, lr = 20, 20, 100.0
    data = stream(12000)[:12000].view(batch, -1).t().contiguous()
    model = WordLM()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = []
    with watch(model) as dbg:
        for epoch in range(8):
            hidden = None
            for i in range(0, len(data) - bptt - 1, bptt):
                if hidden is not None:
                    hidden = tuple(h.detach() for h in hidden)
                logits, hidden = model(data[i : i + bptt], hidden)
                loss = F.cross_entropy(logits.flatten(0, 1), data[i + 1 : i + 1 + bptt].flatten())
                optimizer.zero_grad()
                loss.backward()
                if fixed:
                    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
                    optimizer.step()
                else:
                    optimizer.step()
                    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 2.0
