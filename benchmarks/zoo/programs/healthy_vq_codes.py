"""VQ autoencoder with a straight-through copy, detached codes and an EMA-updated codebook that is no parameter."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "VAE / autoencoder"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Quantizer(nn.Module):
    def __init__(self, codes, d, decay=0.95):
        super().__init__()
        self.decay = decay
        self.register_buffer("book", torch.randn(codes, d))
        self.register_buffer("count", torch.ones(codes))
        self.register_buffer("total", self.book.clone())

    def forward(self, z):
        flat = z.reshape(-1, z.shape[-1])
        index = torch.cdist(flat.detach(), self.book).argmin(1)
        if self.training:
            hot = F.one_hot(index, len(self.book)).to(flat.dtype)
            self.count.lerp_(hot.sum(0), 1 - self.decay)
            self.total.lerp_(hot.T @ flat.detach(), 1 - self.decay)
            self.book.copy_(self.total / self.count.clamp(min=1e-2)[:, None])
        q = self.book[index].view_as(z)
        commit = (z - q.detach()).pow(2).mean()
        return z + (q - z).detach(), commit, index


class VQModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv1d(1, 24, 4, 2, 1), nn.ReLU(), nn.Conv1d(24, 8, 4, 2, 1))
        self.vq = Quantizer(32, 8)
        self.dec = nn.Sequential(nn.ConvTranspose1d(8, 24, 4, 2, 1), nn.ReLU(), nn.ConvTranspose1d(24, 1, 4, 2, 1))

    def forward(self, x):
        z = self.enc(x).transpose(1, 2)
        q, commit, index = self.vq(z)
        return self.dec(q.transpose(1, 2)), commit, index


def signals(n):
    t = torch.arange(32) / 32
    a = torch.randint(1, 4, (n, 1)).float()
    return torch.sign(torch.sin(6.283 * (a * t + torch.randint(0, 4, (n, 1)) / 4)))[:, None] + 0.05 * torch.randn(n, 1, 32)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = VQModel().train()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(400):
            x = signals(48)
            out, commit, index = model(x)
            rec = F.l1_loss(out, x)
            loss = rec + 0.25 * commit
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss({"rec": rec.item()}["rec"])
            losses.append(rec.item())
    used = index.unique().numel()
    return {"loss": losses, "codes": used, "learned": sum(losses[-20:]) / 20 < 0.35 * losses[0]}


def harmed(result):
    return False
