"""Metre of verse lines, trained in two stages: first the head on top of random word vectors, then
everything. The second stage adds nothing: the curve goes on as flat as the first one ended."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["frozen_parameters"],
    "layers": ["syllables", "cadence"],
    "onset": [0, 120],
}


class MetreNet(nn.Module):
    def __init__(self, sounds=40, width=16):
        super().__init__()
        self.syllables = nn.Embedding(sounds, width)
        self.cadence = nn.LSTM(width, 24, batch_first=True)
        self.norm = nn.LayerNorm(24)
        self.metre = nn.Linear(24, 4)

    def forward(self, line):
        states, _ = self.cadence(self.syllables(line))
        return self.metre(self.norm(states.mean(1)))


def lines(n, stress, length=10):
    metre = torch.randint(0, 4, (n,))
    beats = torch.tensor([[0, 1] * 5, [1, 0] * 5, [1, 0, 0] * 3 + [1], [0, 0, 1] * 3 + [0]])[metre]
    strong, weak = stress.nonzero().flatten(), (~stress).nonzero().flatten()
    sound = torch.where(beats == 1, strong[torch.randint(0, len(strong), (n, length))], weak[torch.randint(0, len(weak), (n, length))])
    slip = torch.rand(n, length) < 0.08
    return torch.where(slip, torch.randint(0, len(stress), (n, length)), sound), metre


def set_learning(modules, on):
    for module in modules:
        module.requires_grad_(on)


def stage(model, data, steps, lr, dbg, losses):
    optimizer = torch.optim.Adam([p for p in model.parameters()], lr=lr)
    for _ in range(steps):
        rows = torch.randint(0, len(data[1]), (64,))
        loss = F.cross_entropy(model(data[0][rows]), data[1][rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss.item())
        losses.append(loss.item())


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    data = lines(2000, torch.rand(40) < 0.5)
    model = MetreNet()
    lower = [model.syllables, model.cadence]
    losses = []
    set_learning(lower, fixed)
    with watch(model) as dbg:
        stage(model, data, 120, 1e-2, dbg, losses)
        stage(model, data, 240, 5e-3, dbg, losses)
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.4
