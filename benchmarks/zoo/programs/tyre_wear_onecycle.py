"""Tyre wear from telemetry with the one-cycle policy the user read about. The rate shown at the end
of the run is still close to the one at its start and the model is hardly trained."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["scheduler_misstepped", "lr_too_low"],
    "layers": [],
    "onset": [0, 40],
}


def telemetry(n):
    x = torch.randn(n, 12)
    heat = torch.sigmoid(x[:, 0] + x[:, 1] * x[:, 2])
    return x, (heat * 3 + 0.7 * x[:, 3].abs() - 2).unsqueeze(1)


class Run:
    def __init__(self, model, data, epochs=10, batch=64, per_batch=True):
        self.model, self.data, self.epochs, self.batch, self.per_batch = model, data, epochs, batch, per_batch
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        batches = len(data[0]) // batch
        self.cycle = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=0.05, epochs=epochs, steps_per_epoch=batches, div_factor=1000
        )

    def epoch(self, dbg, log):
        for rows in torch.randperm(len(self.data[0])).split(self.batch):
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(self.data[0][rows]), self.data[1][rows])
            loss.backward()
            self.optimizer.step()
            if self.per_batch:
                self.cycle.step()
            dbg.record_loss(loss.item())
            log.append(loss.item())
        if not self.per_batch:
            self.cycle.step()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(12, 96), nn.Mish(), nn.Linear(96, 96), nn.Mish(), nn.Linear(96, 1))
    run = Run(model, telemetry(64 * 40), per_batch=fixed)
    log = []
    with watch(model) as dbg:
        for _ in range(run.epochs):
            run.epoch(dbg, log)
    return {"loss": log}


def harmed(result):
    return not sum(result["loss"][-40:]) / 40 < 0.3
