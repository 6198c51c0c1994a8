"""Look-up in a set of key and value pairs by one attention head, written with einsum. It reads one wrong pair
with full weight from the first step, and learns slowly and badly."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Transformer"
TRUTH = {
    "failures": ["representation_collapse", "optimizer_instability", "vanishing_gradients", "exploding_gradients"],
    "causes": ["attention_collapse", "temperature_misset"],
    "layers": ["read", "read.soft", "read.q", "read.k"],
    "onset": [0, 0],
}
KEYS, VALUES, PAIRS, D = 40, 8, 8, 96


class Read(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(D, D, bias=False) for _ in range(3))
        for part in (self.q, self.k, self.v):
            nn.init.xavier_normal_(part.weight)
        self.soft = nn.Softmax(dim=-1)
        self.scale = scale

    def forward(self, asked, memory):
        q, k, v = self.q(asked), self.k(memory), self.v(memory)
        weight = self.soft(torch.einsum("bd,bpd->bp", q, k) * self.scale)
        return torch.einsum("bp,bpd->bd", weight, v), weight


class Lookup(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.key = nn.Embedding(KEYS, D)
        self.value = nn.Embedding(VALUES, D)
        self.read = Read(scale)
        self.out = nn.Linear(D, VALUES)

    def forward(self, asked, keys, values):
        found, weight = self.read(self.key(asked), torch.cat([self.key(keys) + self.value(values)], -1))
        return self.out(found), weight


def questions(n):
    keys = torch.rand(n, KEYS).argsort(1)[:, :PAIRS]
    values = torch.randint(0, VALUES, (n, PAIRS))
    at = torch.randint(0, PAIRS, (n, 1))
    return keys.gather(1, at).squeeze(1), keys, values, values.gather(1, at).squeeze(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Lookup(D**-0.5 if fixed else D**0.5)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(300):
            *inputs, answer = questions(64)
            logits, _ = model(*inputs)
            loss = F.cross_entropy(logits, answer)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.8
