"""Reliefs of dunes, 8 x 8, by a DDPM with a tiny UNet. Judged by how well noise is predicted on held-out reliefs."""

import math

import torch
from torch import nn
from torch.nn import functional as F

ARCHITECTURE = "Diffusion"
UNET = ["down1", "down2", "middle", "up1", "up2", "time", "leave", "enter"]
PARTS = UNET + [f"{name}.{part}" for name in UNET for part in ("norm", "conv1", "conv2", "shift", "0", "1", "2", "wave")]
FAULTS = {
    "log_time": {
        "failures": ["numerical_error"],
        "causes": ["log_of_nonpositive"],
        "layers": ["time", "time.wave"],
        "onset": [0, 8],
    },
    "flat_relief_norm": {
        "failures": ["numerical_error"],
        "causes": ["division_by_zero", "sqrt_at_zero"],
        "layers": ["enter", "down1", "down1.norm"],
        "onset": [70, 70],
    },
    "cosine_without_cap": {
        "failures": ["numerical_error", "optimizer_instability", "data_anomaly"],
        "causes": ["noise_schedule_invalid", "nan_in_input"],
        "layers": [],
        "onset": [0, 10],
    },
    "blank_tile_scaling": {
        "failures": ["data_anomaly", "numerical_error"],
        "causes": ["nan_in_input"],
        "layers": [],
        "onset": [70, 70],
    },
    "unscaled_convolutions": {
        "failures": ["exploding_gradients", "optimizer_instability", "numerical_error"],
        "causes": ["init_too_large"],
        "layers": PARTS,
        "onset": [0, 0],
    },
    "fast_momentum": {
        "failures": ["exploding_gradients", "optimizer_instability", "numerical_error"],
        "causes": ["lr_too_high"],
        "layers": PARTS,
        "onset": [0, 60],
    },
}
STEPS = 40


class Wave(nn.Module):
    def __init__(self, dim, log):
        super().__init__()
        self.dim, self.log = dim, log

    def forward(self, t):
        at = torch.log(t.float()) if self.log else t.float()
        rate = torch.exp(-math.log(1000.0) * torch.arange(self.dim // 2) / (self.dim // 2))
        angle = at[:, None] * rate
        return torch.cat([angle.sin(), angle.cos()], 1)


class InstanceNorm(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean((1, 2, 3), keepdim=True)
        return centred / (centred.square().mean((1, 2, 3), keepdim=True) + self.eps).sqrt()


class Stage(nn.Module):
    def __init__(self, cin, cout, dim, eps):
        super().__init__()
        self.norm = InstanceNorm(eps)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.shift = nn.Linear(dim, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)

    def forward(self, x, t):
        h = F.silu(self.conv1(self.norm(x)) + self.shift(t)[:, :, None, None])
        return F.silu(self.conv2(h))


class UNet(nn.Module):
    def __init__(self, base=12, dim=16, eps=1e-5, log=False):
        super().__init__()
        self.time = nn.Sequential(Wave(dim, log), nn.Linear(dim, dim), nn.SiLU())
        self.enter = nn.Conv2d(1, base, 1, bias=eps > 0)
        self.down1 = Stage(base, base, dim, eps)
        self.down2 = Stage(base, 2 * base, dim, eps)
        self.middle = Stage(2 * base, 2 * base, dim, eps)
        self.up2 = Stage(4 * base, base, dim, eps)
        self.up1 = Stage(2 * base, base, dim, eps)
        self.leave = nn.Conv2d(base, 1, 1)

    def forward(self, x, t):
        t = self.time(t)
        a = self.down1(self.enter(x), t)
        b = self.down2(F.avg_pool2d(a, 2), t)
        c = self.middle(F.avg_pool2d(b, 2), t)
        d = self.up2(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1), t)
        return self.leave(self.up1(torch.cat([F.interpolate(d, scale_factor=2.0), a], 1), t))


def reliefs(n, side=8):
    axis = torch.arange(side) / side
    angle, crest = math.pi * torch.rand(n, 1, 1), 1 + 2 * torch.rand(n, 1, 1)
    ramp = angle.cos() * axis[None, :, None] + angle.sin() * axis[None, None]
    return torch.sin(2 * math.pi * (crest * ramp + torch.rand(n, 1, 1)))[:, None]


def schedule(capped):
    f = torch.cos((torch.arange(STEPS + 1) / STEPS + 0.01) / 1.01 * math.pi / 2) ** 2
    beta = 1 - f[1:] / f[:-1]
    beta = beta.clamp(max=0.999) if capped else 1.06 * beta + 0.004
    return torch.cumprod(1 - beta, 0)


def train(watch, fixed=False, seed=0, fault="log_time", severity=1.0):
    torch.manual_seed(seed)
    on = "" if fixed else fault
    kept = schedule(capped=on != "cosine_without_cap")
    model = UNet(eps=0.0 if on == "flat_relief_norm" else 1e-5, log=on == "log_time")
    if on == "unscaled_convolutions":
        for m in model.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.normal_(m.weight, std=severity)
        for name in ("down1", "down2", "middle", "up1", "up2"):
            getattr(model, name).norm = nn.Identity()
    if fault == "fast_momentum":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02 if fixed else 6.0 * severity, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tiles = reliefs(1200)
    held = reliefs(200)
    losses = []

    def predict(clean):
        t = torch.randint(0, STEPS, (len(clean),))
        noise = torch.randn_like(clean)
        k = kept[t][:, None, None, None]
        return F.mse_loss(model(k.sqrt() * clean + (1 - k).sqrt() * noise, t), noise)

    with watch(model) as dbg:
        for i in range(220):
            clean = tiles[torch.randint(0, 1200, (24,))]
            if i == 70:
                clean = clean.clone()
                clean[3] = 0.0
            if i == 70 and on == "blank_tile_scaling":
                clean = clean / clean.abs().amax((1, 2, 3), keepdim=True)
            if i == 70 and fault == "flat_relief_norm":
                t = torch.zeros(24, dtype=torch.long)
                noise = torch.zeros_like(clean)
                loss = F.mse_loss(model(clean, t), noise)
            else:
                loss = predict(clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        after = sum(predict(held).item() for _ in range(5)) / 5
    return {"loss": losses, "held": after}


def harmed(result):
    return not result["held"] < 0.75
