"""A small audio tagger on spectrograms of field recordings.

Trains well for the first batches, then the loss prints nan for the rest of the run.
"""
import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["log_of_nonpositive"],
    "layers": ["frontend"],
    "onset": [21, 21],
}


class Spectrogram(nn.Module):
    def __init__(self, n_fft=64, hop=32, floor=0.0):
        super().__init__()
        self.n_fft, self.hop, self.floor = n_fft, hop, floor
        self.register_buffer("window", torch.hann_window(n_fft))

    def forward(self, wave):
        z = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        power = z.real**2 + z.imag**2
        return torch.log10(power + self.floor)


class Tagger(nn.Module):
    def __init__(self, classes, floor):
        super().__init__()
        self.frontend = Spectrogram(floor=floor)
        self.norm = nn.BatchNorm1d(33)
        self.conv = nn.Sequential(
            nn.Conv1d(33, 32, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(32, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        )
        self.fc = nn.Linear(48, classes)

    def forward(self, wave):
        return self.fc(self.conv(self.norm(self.frontend(wave))))


def recordings(n, classes=5):
    t = torch.arange(512) / 512
    y = torch.randint(0, classes, (n,))
    base = torch.tensor([12.0, 25.0, 45.0, 80.0, 130.0])[y]
    f = base * (1 + 0.08 * torch.randn(n))
    wave = torch.sin(2 * torch.pi * f[:, None] * t + 6.28 * torch.rand(n, 1)) + 0.5 * torch.randn(n, 512)
    return 0.3 * wave, y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    wave, y = recordings(1200)
    wave[690] = 0.0
    wave[1011] = 0.0
    model = Tagger(5, floor=1e-6 if fixed else 0.0)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for epoch in range(3):
            model.train()
            for i in range(0, 1200, 32):
                out = model(wave[i : i + 32])
                loss = nn.functional.cross_entropy(out, y[i : i + 32])
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    model.eval()
    wave, y = recordings(300)
    with torch.no_grad():
        acc = (model(wave).argmax(1) == y).float().mean().item()
    return {"loss": losses, "acc": acc}


def harmed(result):
    return result["acc"] < 0.6 or result["loss"][-1] != result["loss"][-1]
