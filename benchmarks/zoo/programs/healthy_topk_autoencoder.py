"""k-sparse autoencoder (as for features of language models): 8 of 256 units on per sample, most zeros all the time."""
import torch
from torch import nn

ARCHITECTURE = "VAE / autoencoder"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class SAE(nn.Module):
    def __init__(self, d=32, n=256, k=8):
        super().__init__()
        self.k = k
        self.b_pre = nn.Parameter(torch.zeros(d))
        self.enc = nn.Linear(d, n)
        self.dec = nn.Linear(n, d, bias=False)
        with torch.no_grad():
            self.dec.weight.copy_(nn.functional.normalize(self.enc.weight.T, dim=0))

    def forward(self, x):
        pre = torch.relu(self.enc(x - self.b_pre))
        top, idx = pre.topk(self.k, dim=-1)
        code = torch.zeros_like(pre).scatter(-1, idx, top)
        return self.dec(code) + self.b_pre, code


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    atoms = nn.functional.normalize(torch.randn(64, 32), dim=1)

    def sample(n):
        a = torch.rand(n, 64) * (torch.rand(n, 64) < 0.06)
        return a @ atoms * 2

    sae = SAE()
    opt = torch.optim.Adam(sae.parameters(), lr=2e-3)
    losses, l0 = [], []
    with watch(sae) as dbg:
        for it in range(500):
            x = sample(256)
            out, code = sae(x)
            loss = (out - x).pow(2).sum(-1).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            l0.append((code > 0).float().sum(1).mean().item())
    return {"loss": losses, "l0": l0, "learned": losses[-1] < 0.2 * losses[0]}


def harmed(result):
    return False
