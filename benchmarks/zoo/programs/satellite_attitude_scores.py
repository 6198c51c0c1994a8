"""A ranking net for star patterns. From update 900 the scores of all candidates are turned into shares with a hand-written
softmax at a colder setting; soon after, the loss is nan."""
import torch
from torch import nn

ARCHITECTURE = "Embedding / factorisation"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["exp_overflow", "temperature_misset"],
    "layers": [],
    "onset": [900, 960],
}


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.view = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 16))
        self.star = nn.Embedding(30, 16)

    def forward(self, x):
        return self.view(x) @ self.star.weight.T


def shares(scores, cold, shift):
    scores = scores / cold
    if shift:
        scores = scores - scores.amax(1, keepdim=True)
    e = torch.exp(scores)
    return e / e.sum(1, keepdim=True)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    sky = torch.randn(30, 12)
    net = Matcher()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    losses, hits = [], []
    with watch(net) as dbg:
        for step in range(1400):
            y = torch.randint(30, (64,))
            scores = net(sky[y] + 0.4 * torch.randn(64, 12))
            cold = 1.0 if step < 900 else 0.2
            p = shares(scores, cold, shift=fixed)
            loss = -(p.gather(1, y[:, None]) + 1e-6).log().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            hits.append((scores.argmax(1) == y).float().mean().item())
            dbg.record_loss(losses[-1])
    return {"loss": losses, "hit": hits}


def harmed(result):
    return not sum(result["hit"][-50:]) / 50 > 0.6
