"""Self-supervised vectors of song syllables: two distorted copies of a syllable are pulled together.
The loss is perfect in no time and every syllable has the same vector."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["representation_collapse"],
    "causes": ["embedding_collapse"],
    "layers": ["encoder", "encoder.0", "encoder.1", "encoder.2", "encoder.3", "encoder.4", "predict", "predict.0", "predict.1", "predict.2"],
    "onset": [0, 80],
}


class TwinNet(nn.Module):
    def __init__(self, hold):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 32), nn.Identity())
        self.predict = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 32))
        self.hold = hold

    def forward(self, one, two):
        a, b = self.encoder(one), self.encoder(two)
        pa, pb = self.predict(a), self.predict(b)
        if self.hold:
            a, b = a.detach(), b.detach()
        return -(F.cosine_similarity(pa, b).mean() + F.cosine_similarity(pb, a).mean()) / 2


def distort(x):
    return x * (1 + 0.2 * torch.randn(len(x), 1)) + 0.4 * torch.randn_like(x)


def spread(model, x):
    with torch.no_grad():
        z = F.normalize(model.encoder(x), dim=1)
    return z.std(0).mean().item() * z.shape[1] ** 0.5


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    syllables = torch.randn(600, 10) @ torch.randn(10, 32) / 2
    model = TwinNet(hold=fixed)
    if fixed:
        model.encoder[4] = nn.BatchNorm1d(32, affine=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses, width = [], []
    with watch(model) as dbg:
        for step in range(300):
            x = syllables[torch.randint(0, 600, (64,))]
            loss = model(distort(x), distort(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            width.append(spread(model, x))
    return {"loss": losses, "width": width}


def harmed(result):
    return result["width"][-1] < 0.3
