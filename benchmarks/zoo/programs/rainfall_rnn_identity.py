"""Rain of the next day from ninety past days by a plain ReLU recurrence whose memory starts at 1.25 times itself."""
import torch
from torch import nn

TRUTH = {"failures": ["exploding_gradients", "optimizer_instability", "numerical_error"], "causes": ["init_too_large", "missing_gradient_clipping"], "layers": ["memory"], "onset": [0, 0]}


class Rain(nn.Module):
    def __init__(self, keep):
        super().__init__()
        self.memory = nn.RNN(4, 40, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(40, 1)
        with torch.no_grad():
            self.memory.weight_hh_l0.copy_(keep * torch.eye(40))
            self.memory.weight_ih_l0.mul_(0.3)

    def forward(self, days):
        return self.out(self.memory(days)[0][:, -1])


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Rain(0.95 if fixed else 1.25)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(250):
            days = torch.randn(32, 60, 4)
            target = days[:, -6:, 0].mean(1, keepdim=True) * 2
            loss = nn.functional.mse_loss(model(days), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.6
