"""Fine fields of a flow from coarse ones with short floats on this machine. The field term has a tiny weight beside others
to come; the weights do not move at all, in full precision they do."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["vanishing_gradients", "numerical_error"],
    "causes": ["half_precision_underflow"],
    "layers": [],
    "onset": [0, 0],
}


class Refine(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.lift = nn.Conv2d(2, width, 3, padding=1)
        self.mid = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Conv2d(width, 2, 3, padding=1)

    def forward(self, coarse):
        h = F.gelu(self.lift(coarse))
        return self.out(h + F.gelu(self.mid(h)))


def flow(n, size=16):
    spectrum = torch.randn(n, 2, 5, 5)
    fine = F.interpolate(spectrum, size, mode="bicubic", align_corners=True)
    fine = fine + 0.3 * fine.roll(1, -1) * fine.roll(1, -2).flip(1)
    coarse = F.interpolate(F.avg_pool2d(fine, 2), size, mode="nearest")
    return coarse, fine


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Refine()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, enabled=fixed)
    losses = []
    with watch(model) as dbg:
        for _ in range(150):
            coarse, fine = flow(4)
            with torch.autocast("cpu", dtype=torch.float16):
                guess = model(coarse)
                field = (guess.float() - fine).square().mean()
            loss = 2e-6 * field
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            dbg.record_loss(loss.item())
            losses.append(field.item())
    return {"field": losses}


def harmed(result):
    return sum(result["field"][-20:]) / 20 > 0.3
