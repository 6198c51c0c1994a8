"""Sun-induced fluorescence (fluxes of a few ten-thousandths) unmixed by a small autoencoder under
float16 autocast. The reconstruction error is the same number in every epoch; float32 on a laptop learns."""
import torch
from torch import nn

TRUTH = {
    "failures": ["vanishing_gradients", "numerical_error"],
    "causes": ["half_precision_underflow"],
    "layers": [],
    "onset": [0, 0],
}


class Unmix(nn.Module):
    flux = 1e-3

    def __init__(self, bands=64, sources=4):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(bands, 48), nn.SiLU(), nn.Linear(48, sources))
        self.decode = nn.Sequential(nn.Linear(sources, 48), nn.SiLU(), nn.Linear(48, bands))

    def forward(self, spectra):
        with torch.autocast("cpu", dtype=torch.float16):
            out = self.decode(self.encode(spectra / self.flux))
        return out.float() * self.flux


def scenes(n, bands=64):
    grid = torch.linspace(0, 1, bands)
    peaks = torch.exp(-((grid - torch.tensor([0.2, 0.4, 0.6, 0.85])[:, None]) ** 2) / 0.01)
    return 1e-3 * (torch.randn(n, 4) @ peaks + 0.05 * torch.randn(n, bands))


class Trainer:
    def __init__(self, model, scale=1.0):
        self.model, self.scale = model, scale
        self.optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-15)
        self.loss_fn = nn.MSELoss()

    def step(self, spectra):
        self.optimizer.zero_grad()
        loss = self.loss_fn(self.model(spectra), spectra)
        (loss * self.scale).backward()
        for p in self.model.parameters():
            p.grad.div_(self.scale)
        self.optimizer.step()
        return loss.item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    data = scenes(2048)
    model = Unmix()
    trainer = Trainer(model, 2.0**17) if fixed else Trainer(model)
    losses = []
    with watch(model) as dbg:
        for i in range(200):
            loss = trainer.step(data[torch.randint(0, 2048, (128,))])
            dbg.record_loss(loss)
            losses.append(loss)
    return {"loss": losses, "relative": sum(losses[-20:]) / 20 / data.var().item()}


def harmed(result):
    return not result["relative"] < 0.3
