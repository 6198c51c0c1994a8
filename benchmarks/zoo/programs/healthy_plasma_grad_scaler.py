"""Plasma shots with float16 autocast and a gradient scaler; the scale grows often, so now and then a step is skipped."""
import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Shot(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.out = nn.Linear(64, 2)

    def forward(self, x):
        return self.out(self.layers(x))


def shots(n):
    x = torch.randn(n, 16)
    return x, torch.stack([x[:, 0] * x[:, 1] + x[:, 2], torch.sin(x[:, 3] + x[:, 4])], 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = shots(4000)
    model = Shot()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=25)
    losses, skipped = [], 0
    with watch(model) as dbg:
        for step in range(350):
            rows = torch.randint(0, 4000, (64,))
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.float16):
                out = model(x[rows])
            loss = nn.functional.mse_loss(out.float(), y[rows])
            before = scaler.get_scale()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            skipped += scaler.get_scale() < before
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    last = sum(losses[-20:]) / 20
    return {"loss": losses, "skipped": skipped, "learned": last < 0.3 * sum(losses[:5]) / 5 and skipped < 20}


def harmed(result):
    return False
