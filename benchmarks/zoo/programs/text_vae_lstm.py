"""Sequence VAE with an autoregressive GRU decoder; the KL goes to zero and all samples of z decode alike."""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "VAE / autoencoder"
TRUTH = {
    "failures": ["representation_collapse"],
    "causes": ["posterior_collapse"],
    "layers": [],
    "onset": None,
}


class SeqVAE(nn.Module):
    def __init__(self, vocab=12, dim=24, hidden=48, z=4, word_drop=0.0):
        super().__init__()
        self.word_drop = word_drop
        self.emb = nn.Embedding(vocab + 1, dim)
        self.enc = nn.GRU(dim, hidden, batch_first=True)
        self.mu, self.logvar = nn.Linear(hidden, z), nn.Linear(hidden, z)
        self.start = nn.Linear(z, hidden)
        self.dec = nn.GRU(dim, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)
        self.vocab = vocab

    def forward(self, ids):
        h = self.enc(self.emb(ids))[1][-1]
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (logvar / 2).exp()
        shifted = torch.cat([torch.full_like(ids[:, :1], self.vocab), ids[:, :-1]], 1)
        if self.training and self.word_drop:
            shifted = shifted.masked_fill(torch.rand(shifted.shape) < self.word_drop, self.vocab)
        h, _ = self.dec(self.emb(shifted), torch.tanh(self.start(z))[None])
        return self.out(h), mu, logvar


def sentences(n):
    topic = torch.randint(0, 12, (n, 1))
    ids = (topic + torch.arange(10)) % 12
    noise = torch.rand(n, 10) < 0.1
    return torch.where(noise, torch.randint(0, 12, (n, 10)), ids)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = SeqVAE(word_drop=0.5 if fixed else 0.0)
    opt = torch.optim.Adam(net.parameters(), lr=4e-3)
    losses, kls = [], []
    with watch(net) as dbg:
        for step in range(500):
            ids = sentences(64)
            logits, mu, logvar = net(ids)
            nll = F.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="sum") / 64
            kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
            weight = min(1.0, max(0.0, (step - 150) / 200)) if fixed else 1.0
            loss = nll + weight * kl
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            kls.append(kl.item())
    return {"loss": losses, "kl_last": sum(kls[-30:]) / 30}


def harmed(result):
    return result["kl_last"] < 0.3
