"""A VAE over syllable sequences: a recurrent encoder, a recurrent decoder that sees the true previous
syllables. Texts read well, but two different codes give the same text; the code is not used."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["representation_collapse"],
    "causes": ["posterior_collapse"],
    "layers": ["read", "mean", "log_var", "to_state"],
    "onset": [0, 60],
}
SYLLABLES, LENGTH, CODE = 12, 10, 4


class TextVAE(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.table = nn.Embedding(SYLLABLES + 1, 16)
        self.read = nn.GRU(16, width, batch_first=True)
        self.mean, self.log_var = nn.Linear(width, CODE), nn.Linear(width, CODE)
        self.to_state = nn.Linear(CODE, width)
        self.write = nn.GRU(16, width, batch_first=True)
        self.syllable = nn.Linear(width, SYLLABLES)

    def forward(self, text):
        _, h = self.read(self.table(text))
        mean, log_var = self.mean(h[0]), self.log_var(h[0])
        code = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        start = torch.full((len(text), 1), SYLLABLES)
        states, _ = self.write(self.table(torch.cat([start, text[:, :-1]], 1)), self.to_state(code).tanh()[None])
        return self.syllable(states), mean, log_var


def texts(n):
    topic = torch.randint(0, 6, (n,))
    text = (2 * topic[:, None] + torch.randint(0, 2, (n, LENGTH)) + torch.randint(0, 3, (n, LENGTH))) % SYLLABLES
    return text


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    vae = TextVAE()
    optimizer = torch.optim.Adam(vae.parameters(), lr=6e-3)
    least = 0.6 if fixed else 0.0  # nats that each dimension of the code may have for free
    losses, information = [], []
    with watch(vae) as dbg:
        for step in range(240):
            text = texts(64)
            logits, mean, log_var = vae(text)
            rebuilt = F.cross_entropy(logits.flatten(0, 1), text.flatten()) * LENGTH
            per_dim = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).mean(0)
            loss = rebuilt + per_dim.clamp(min=least).sum() * (1 if fixed else 3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            information.append(per_dim.sum().item())
    return {"loss": losses, "information": information}


def harmed(result):
    return sum(result["information"][-20:]) / 20 < 0.3
