"""CLIP-like training of two towers with a fixed temperature as in the paper; loss stays at log(batch)."""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "Contrastive"
TRUTH = {
    "failures": ["representation_collapse", "optimizer_instability"],
    "causes": ["temperature_misset"],
    "layers": [],
    "onset": [0, 0],
}


class TwoTowers(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(1, 12, 3, 2, 1), nn.GELU(), nn.Conv2d(12, 24, 3, 2, 1), nn.GELU(),
            nn.Flatten(), nn.Linear(24 * 9, dim),
        )
        self.text = nn.Sequential(nn.EmbeddingBag(40, 48, mode="mean"), nn.GELU(), nn.Linear(48, dim))

    def forward(self, img, tok):
        return F.normalize(self.image(img), dim=1), F.normalize(self.text(tok), dim=1)


class ClipLoss(nn.Module):
    def __init__(self, temperature, divide):
        super().__init__()
        self.factor = 1 / temperature if divide else temperature

    def forward(self, a, b):
        logits = a @ b.T * self.factor
        label = torch.arange(len(a))
        return (F.cross_entropy(logits, label) + F.cross_entropy(logits.T, label)) / 2


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    patch = torch.randn(40, 12, 12)
    def pairs(n):
        tok = torch.stack([torch.randperm(40)[:3] for _ in range(n)])
        img = patch[tok].sum(1)[:, None] / 1.7 + 1.0 * torch.randn(n, 1, 12, 12)
        return img, tok

    model = TwoTowers()
    img, tok = pairs(2048)
    loss_fn = ClipLoss(0.07, divide=fixed)
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    losses = []
    with watch(model) as dbg:
        for epoch in range(10):
            for rows in torch.randperm(2048).split(64):
                loss = loss_fn(*model(img[rows], tok[rows]))
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                dbg.record_loss(loss.item())
    img, tok = pairs(500)
    with torch.no_grad():
        a, b = model(img, tok)
    hit = ((a @ b.T).argmax(1) == torch.arange(500)).float().mean().item()
    return {"loss": losses, "hit": hit}


def harmed(result):
    return result["hit"] < 0.45
