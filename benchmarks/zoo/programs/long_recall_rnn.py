"""Plain RNN that has to recall the first symbol of a sequence; with length 8 it works, with 40 it does not."""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["vanishing_gradients"],
    "causes": ["recurrent_vanishing"],
    "layers": ["rnn"],
    "onset": [0, 0],
}


class Recall(nn.Module):
    def __init__(self, symbols=6, hidden=48):
        super().__init__()
        self.embed = nn.Embedding(symbols + 1, 16)
        self.rnn = nn.RNN(16, hidden, batch_first=True)
        self.read = nn.Linear(hidden, symbols)

    def forward(self, ids):
        out, _ = self.rnn(self.embed(ids))
        return self.read(out[:, -1])


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = Recall()
    if fixed:
        nn.init.orthogonal_(net.rnn.weight_hh_l0)
        nn.init.normal_(net.rnn.weight_ih_l0, std=0.05)
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    losses, hits = [], []
    with watch(net) as dbg:
        for step in range(700):
            ids = torch.full((64, 40), 6)
            ids[:, 0] = torch.randint(0, 6, (64,))
            logits = net(ids)
            loss = F.cross_entropy(logits, ids[:, 0])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            losses.append(loss.item())
            hits.append((logits.argmax(1) == ids[:, 0]).float().mean().item())
            dbg.record_loss(loss.item())
    return {"loss": losses, "hit": sum(hits[-20:]) / 20}


def harmed(result):
    return result["hit"] < 0.5
