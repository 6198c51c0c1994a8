"""A sparse autoencoder for perfume spectra: ReLU code and a penalty on the size of the code.

The reconstruction is good for some batches, gets worse again and ends as the same grey average for every
spectrum. The code is zero everywhere.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["dead_neurons", "representation_collapse", "vanishing_gradients"],
    "causes": ["dying_relu"],
    "layers": ["encode", "encode.2", "encode.3"],
    "onset": [0, 45],
}


class SparseCoder(nn.Module):
    def __init__(self, wavelengths=50, code=64):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(wavelengths, 64), nn.Tanh(), nn.Linear(64, code), nn.ReLU())
        self.decode = nn.Linear(code, wavelengths)

    def forward(self, spectrum):
        code = self.encode(spectrum)
        return self.decode(code), code


def spectra(n):
    notes = torch.randn(12, 50)
    mixture = torch.rand(n, 12).pow(3)
    spectrum = mixture @ notes + 0.05 * torch.randn(n, 50)
    return (spectrum - spectrum.mean(0)) / spectrum.std(0)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    spectrum = spectra(3000)
    penalty = 0.01 if fixed else 30.0
    model = SparseCoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    log = {"loss": [], "rebuilt": []}
    with watch(model) as dbg:
        for step in range(450):
            batch = spectrum[torch.randint(0, len(spectrum), (64,))]
            output, code = model(batch)
            rebuilt = nn.functional.mse_loss(output, batch)
            loss = rebuilt + penalty * code.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            log["loss"].append(loss.item())
            log["rebuilt"].append(rebuilt.item())
    log["active"] = (code > 0).float().mean().item()
    return log


def harmed(result):
    return result["active"] == 0 and sum(result["rebuilt"][-20:]) / 20 > 0.6
