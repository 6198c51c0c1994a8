"""Binding or not from descriptor vectors, only 400 samples, so dropout is strong. Half way a one-off check on
held-out data was put into the loop; since then the held-out loss climbs and climbs."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["eval_mode_in_training"],
    "layers": [],
    "onset": [600, 600],
}


class Binder(nn.Module):
    def __init__(self, n=60):
        super().__init__()
        layers, width = [nn.Dropout(0.4)], n
        for _ in range(2):
            layers += [nn.Linear(width, 64), nn.ReLU(), nn.Dropout(0.6)]
            width = 64
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


class Trainer:
    def __init__(self, model, data, held, restore):
        self.model, self.data, self.held, self.restore = model, data, held, restore
        self.loss_fn = nn.BCEWithLogitsLoss()
        self.opt = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=3e-4)

    @torch.no_grad()
    def held_out(self):
        self.model.eval()
        x, y = self.held
        return self.loss_fn(self.model(x), y).item()

    def step(self):
        x, y = self.data
        i = torch.randint(len(x), (40,))
        self.opt.zero_grad()
        loss = self.loss_fn(self.model(x[i]), y[i])
        loss.backward()
        self.opt.step()
        return loss.item()

    def fit(self, steps, dbg):
        losses = []
        for step in range(steps):
            if step == 600:
                print(f"held-out loss {self.held_out():.3f}")
                if self.restore:
                    self.model.train()
            losses.append(self.step())
            dbg.record_loss(losses[-1])
        return losses


def samples(n, w):
    x = torch.randn(n, 60)
    p = torch.sigmoid(1.2 * (x @ w))
    return x, torch.bernoulli(p)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    w = torch.zeros(60)
    w[:6] = torch.tensor([1.0, -1.0, 1.0, -1.0, 0.7, 0.7])
    model = Binder()
    trainer = Trainer(model, samples(400, w), samples(1000, w), fixed)
    with watch(model) as dbg:
        losses = trainer.fit(2400, dbg)
    return {"loss": losses, "held_out": trainer.held_out()}


def harmed(result):
    return result["held_out"] > 0.72
