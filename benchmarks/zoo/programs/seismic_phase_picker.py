"""Earthquake onsets picked in seismograms by a 1-D convnet wrapped in a small Trainer class. The
loss oscillates with growing swings; lowering the rate only delays it."""
from dataclasses import dataclass

import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability", "exploding_gradients"],
    "causes": ["missing_zero_grad"],
    "layers": [],
    "onset": [0, 1],
}


@dataclass
class Options:
    lr: float = 0.1
    epochs: int = 12
    batch: int = 32
    clear: bool = False


def seismograms(n, length=64):
    onset = torch.randint(8, 56, (n,))
    t = torch.arange(length)[None]
    after = (t >= onset[:, None]).float()
    wave = after * torch.sin(0.9 * (t - onset[:, None])) * torch.exp(-0.05 * (t - onset[:, None]).clamp(min=0)) * 2
    return (wave + 0.8 * torch.randn(n, length))[:, None], onset


class Picker(nn.Module):
    def __init__(self):
        super().__init__()
        self.near = nn.Conv1d(1, 16, 9, padding=4)
        self.wide = nn.Conv1d(16, 16, 9, padding=4)
        self.pick = nn.Conv1d(16, 1, 1)

    def forward(self, trace):
        h = nn.functional.silu(self.near(trace))
        return self.pick(nn.functional.silu(self.wide(h)))[:, 0]


class Trainer:
    def __init__(self, model, options):
        self.model, self.options = model, options
        self.optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.8)
        self.losses = []

    def fit(self, traces, onset, dbg):
        for _ in range(self.options.epochs):
            for rows in torch.randperm(len(traces)).split(self.options.batch):
                loss = self.training_step(traces[rows], onset[rows])
                self.losses.append(loss)
                dbg.record_loss(loss)

    def training_step(self, trace, onset):
        loss = nn.functional.cross_entropy(self.model(trace), onset)
        if self.options.clear:
            self.model.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    picker = Picker()
    trainer = Trainer(picker, Options(clear=fixed))
    with watch(picker) as dbg:
        trainer.fit(*seismograms(960), dbg)
    return {"loss": trainer.losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 1.6
