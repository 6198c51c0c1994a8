"""Muon tracks from detector hits with mixed precision. The scaler, the clip and the optimizer are
all there; the loss moves in the fifth digit, and a hundred times the rate is only a bit better."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "vanishing_gradients", "optimizer_instability"],
    "causes": ["clip_before_unscale"],
    "layers": [],
    "onset": [0, 0],
}


class TrackFit(nn.Module):
    def __init__(self, planes=8):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2 * planes, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.momentum = nn.Linear(64, 2)

    def forward(self, hits):
        return self.momentum(self.body(hits.flatten(1)))


def tracks(n, planes=8):
    slope, bend = torch.randn(n, 1), torch.randn(n, 1)
    z = torch.linspace(0, 1, planes)
    hits = torch.stack([slope * z + bend * z**2, slope * z**2 - bend * z], 2)
    return hits + 0.03 * torch.randn_like(hits), torch.cat([slope, bend.tanh() * 2], 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    hits, truth = tracks(3000)
    model = TrackFit()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15)
    losses = []
    with watch(model) as dbg:
        for step in range(250):
            rows = torch.randint(0, 3000, (64,))
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = model(hits[rows])
            loss = nn.functional.mse_loss(out.float(), truth[rows])
            scaler.scale(loss).backward()
            if fixed:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.2
