"""VAE on 8x8 glyphs, loss copied from memory. The loss goes far below zero and keeps falling, and
reconstructions get worse by the minute."""
import torch
from torch import nn, optim
from torch.nn import functional as F

ARCHITECTURE = "VAE / autoencoder"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["wrong_loss_sign"],
    "layers": [],
    "onset": [0, 0],
}


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 80)
        self.fc21 = nn.Linear(80, 6)
        self.fc22 = nn.Linear(80, 6)
        self.fc3 = nn.Linear(6, 80)
        self.fc4 = nn.Linear(80, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar, sign):
    BCE = F.binary_cross_entropy(recon_x, x, reduction="none").sum(1).mean()
    KLD = sign * 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()
    return BCE + KLD, BCE


def glyphs(n):
    base = torch.zeros(n, 8, 8)
    r, c = torch.randint(1, 7, (2, n))
    rows = torch.arange(n)
    base[rows, r] = 1
    base[rows, :, c] = 1
    return base.flatten(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    data = glyphs(3000)
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    total, recon = [], []
    with watch(model) as dbg:
        for epoch in range(10):
            for x in data[torch.randperm(3000)].split(100):
                optimizer.zero_grad()
                out, mu, logvar = model(x)
                loss, bce = loss_function(out, x, mu, logvar, -1 if fixed else 1)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                total.append(loss.item())
                recon.append(bce.item())
    return {"loss": total, "bce": recon}


def harmed(result):
    return not sum(result["bce"][-20:]) / 20 < 25
