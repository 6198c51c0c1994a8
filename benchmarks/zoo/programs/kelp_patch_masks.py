"""Kelp in aerial patches: segmentation with a small U-shaped network, own loop. After two hours
the masks are still noise and the loss moves only with the batch."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["missing_optimizer_step"],
    "layers": [],
    "onset": [0, 0],
}


class KelpNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(2, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU())
        self.deep = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2))
        self.mask = nn.Conv2d(28, 1, 1)

    def forward(self, patch):
        a = self.enc(patch)
        return self.mask(torch.cat([a, self.deep(a)], 1))


def patches(n, side=12):
    field = nn.functional.avg_pool2d(torch.randn(n, 1, side, side), 5, 1, 2)
    kelp = (field > 0.05).float()
    bands = torch.cat([kelp + 0.6 * torch.randn_like(kelp), 0.5 * kelp + 0.6 * torch.randn_like(kelp)], 1)
    return bands, kelp


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    bands, kelp = patches(512)
    model = KelpNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=220)
    losses = []
    with watch(model) as dbg:
        for it in range(220):
            rows = torch.randint(0, len(bands), (24,))
            loss = nn.functional.binary_cross_entropy_with_logits(model(bands[rows]), kelp[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if fixed:
                optimizer.step()
            scheduler.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.35
