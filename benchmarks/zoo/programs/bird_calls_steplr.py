"""Bird call classifier with StepLR(step_size=8), 16 epochs. Loss stands still from the first epoch on."""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["optimizer_instability", "training_wiring"],
    "causes": ["lr_decayed_to_zero", "scheduler_misstepped"],
    "layers": [],
    "onset": [7, 24],
}


class CallNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 16, 9, stride=4, padding=4), nn.BatchNorm1d(16), nn.ReLU(),
            nn.Conv1d(16, 32, 9, stride=4, padding=4), nn.BatchNorm1d(32), nn.ReLU(),
            nn.Conv1d(32, 32, 5, stride=2, padding=2), nn.BatchNorm1d(32), nn.ReLU(),
        )
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(32, classes))

    def forward(self, wave):
        return self.head(self.net(wave).mean(2))


def calls(n):
    y = torch.randint(0, 5, (n,))
    t = torch.arange(256) / 256
    low = torch.tensor([10.0, 20.0, 20.0, 35.0, 10.0])[y][:, None]
    rise = torch.tensor([15.0, 0.0, 15.0, -10.0, 0.0])[y][:, None]
    wave = torch.sin(2 * torch.pi * (low * t + rise * t * t / 2) + 6.28 * torch.rand(n, 1))
    return (wave + 0.8 * torch.randn(n, 256))[:, None], y


class Trainer:
    def __init__(self, net, per_epoch):
        self.net, self.per_epoch = net, per_epoch
        self.opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, step_size=8, gamma=0.1)
        self.losses = []

    def epoch(self, x, y, dbg):
        self.net.train()
        for rows in torch.randperm(len(x)).split(32):
            loss = F.cross_entropy(self.net(x[rows]), y[rows])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if not self.per_epoch:
                self.sched.step()
            self.losses.append(loss.item())
            dbg.record_loss(loss.item())
        if self.per_epoch:
            self.sched.step()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = calls(800)
    trainer = Trainer(CallNet(), per_epoch=fixed)
    with watch(trainer.net) as dbg:
        for _ in range(16):
            trainer.epoch(x, y, dbg)
    return {"loss": trainer.losses}


def harmed(result):
    return sum(result["loss"][-25:]) / 25 > 0.7
