"""Heavy-tailed regression that reaches its noise floor early and stays: ReduceLROnPlateau cuts the lr, gradients are clipped."""
import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Taps(nn.Module):
    def __init__(self, lags=16):
        super().__init__()
        self.mix = nn.Conv1d(2, 16, lags, bias=True)
        self.read = nn.Conv1d(16, 1, 1)
        self.skip = nn.Conv1d(2, 1, lags)

    def forward(self, x):
        return (self.read(torch.tanh(self.mix(x))) + self.skip(x)).squeeze(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    kernel = torch.randn(1, 2, 16) / 4
    heavy = torch.distributions.StudentT(2.5)

    def draw(n):
        x = torch.randn(n, 2, 48)
        clean = nn.functional.conv1d(x, kernel).squeeze(1)
        clean = clean + torch.tanh(clean * 2)
        return x, clean + 0.5 * heavy.sample(clean.shape), clean

    net = Taps()
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.3, patience=2, threshold=1e-2, min_lr=1e-4)
    losses = []
    with watch(net) as dbg:
        for epoch in range(20):
            total = 0.0
            for _ in range(20):
                x, noisy, _ = draw(24)
                loss = nn.functional.mse_loss(net(x), noisy)
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
                total += loss.item() / 20
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            plateau.step(total)
    with torch.no_grad():
        x, _, clean = draw(200)
        unexplained = (net(x) - clean).pow(2).mean().item() / clean.var().item()
    return {"loss": losses, "unexplained": unexplained, "learned": unexplained < 0.1}


def harmed(result):
    return False
