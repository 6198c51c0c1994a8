"""Heart rate from pulse waves. I replaced .mean() by .sum() over samples to 'weight big batches more' and kept the
learning rate of SGD; the loss wanders up and never comes down."""
import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["objective_mismatch", "exploding_gradients", "optimizer_instability"],
    "causes": ["wrong_reduction"],
    "layers": [],
    "onset": [0, 0],
}


class PulseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(1, 12, 9, stride=2, padding=4), nn.ELU(),
                                   nn.Conv1d(12, 24, 9, stride=2, padding=4), nn.ELU())
        self.back = nn.Sequential(nn.Flatten(), nn.Linear(24 * 16, 32), nn.ELU(), nn.Linear(32, 1))

    def forward(self, w):
        return self.back(self.front(w))[:, 0]


def pulses(n):
    rate = torch.rand(n)
    t = torch.linspace(0, 1, 64)
    w = torch.sin(6.28 * (2 + 5 * rate[:, None]) * t + 6.28 * torch.rand(n, 1)) + 0.2 * torch.randn(n, 64)
    return w[:, None], (rate - 0.5) * 3.46


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = PulseNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    hist = []
    with watch(net) as dbg:
        for it in range(300):
            w, rate = pulses(80)
            err = (net(w) - rate) ** 2
            loss = err.mean() if fixed else err.sum()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(net.parameters(), 20.0)
            opt.step()
            dbg.record_loss(loss.item())
            hist.append(err.mean().item())
    return {"loss": hist}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.2
