"""A mixture density network for meteor speeds; the log-likelihood itself is returned as the loss."""
import torch
from torch import nn

TRUTH = {"failures": ["objective_mismatch", "optimizer_instability", "numerical_error"], "causes": ["wrong_loss_sign"], "layers": [], "onset": [0, 0]}


class Speeds(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 48), nn.Tanh(), nn.Linear(48, 9))

    def forward(self, sky):
        share, middle, width = self.body(sky).chunk(3, -1)
        mix = torch.distributions.Categorical(logits=share)
        parts = torch.distributions.Normal(middle, nn.functional.softplus(width) + 0.05)
        return torch.distributions.MixtureSameFamily(mix, parts)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    sky = torch.randn(1000, 3)
    speed = torch.where(torch.rand(1000) < 0.5, sky[:, 0], -sky[:, 1]) + 0.1 * torch.randn(1000)
    model = Speeds()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    fits = []
    with watch(model) as dbg:
        for _ in range(300):
            rows = torch.randint(0, 1000, (64,))
            fit = model(sky[rows]).log_prob(speed[rows]).mean()
            loss = -fit if fixed else fit
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            fits.append(fit.item())
    return {"fit": fits}


def harmed(result):
    return not sum(result["fit"][-20:]) / 20 > -2
