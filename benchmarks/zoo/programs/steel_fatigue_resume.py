"""Fatigue life of steel samples on a queue that stops jobs after an hour; the run picks itself up
from its checkpoint. At each pick-up the loss jumps and needs long to come back."""
import io

import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["resume_without_optimizer_state"],
    "layers": [],
    "onset": [240, 241],
}


class Fatigue(nn.Module):
    def __init__(self):
        super().__init__()
        self.stress = nn.Linear(10, 64)
        self.cycles = nn.Linear(64, 64)
        self.life = nn.Linear(64, 1)

    def forward(self, x):
        return self.life(torch.tanh(self.cycles(torch.tanh(self.stress(x)))))


def samples(n):
    x = torch.randn(n, 10)
    return x, torch.sin(x[:, :1] + x[:, 1:2]) + 0.5 * x[:, 2:3] * x[:, 3:4].tanh()


def checkpoint(model, optimizer, everything):
    file = io.BytesIO()
    state = {"model": model.state_dict()}
    if everything:
        state["optimizer"] = optimizer.state_dict()
    torch.save(state, file)
    file.seek(0)
    return file


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = samples(4000)
    model = Fatigue()

    def start():
        return torch.optim.Adagrad(model.parameters(), lr=0.05)

    optimizer = start()
    losses = []
    with watch(model) as dbg:
        for step in range(300):
            if step == 240:
                saved = torch.load(checkpoint(model, optimizer, everything=fixed), weights_only=True)
                model.load_state_dict(saved["model"])
                optimizer = start()
                if "optimizer" in saved:
                    optimizer.load_state_dict(saved["optimizer"])
            rows = torch.randint(0, 4000, (64,))
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            dbg.record_loss(loss.item())
    return {"loss": losses}


def harmed(result):
    before = sum(result["loss"][220:240]) / 20
    return max(result["loss"][240:260]) > 3 * before
