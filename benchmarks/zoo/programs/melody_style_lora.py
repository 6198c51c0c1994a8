"""A melody model learned folk tunes; now it is taught a composer's style, by low-rank updates or by plain
fine-tuning. The old tunes should still be played."""

import torch
from torch import nn
from torch.nn import functional as F

ARCHITECTURE = "LLM fine-tuning"
INNER = [f"trunk.{i}{p}" for i in range(3) for p in ("", ".base", ".A", ".B", ".fc")] + ["trunk"]
FAULTS = {
    "full_tune_only_new": {
        "failures": ["optimizer_instability", "representation_collapse"],
        "causes": ["catastrophic_forgetting", "lr_too_high"],
        "layers": [],
        "onset": [0, 60],
    },
    "lora_only_new_high_rate": {
        "failures": ["optimizer_instability", "representation_collapse"],
        "causes": ["catastrophic_forgetting", "adapter_scale_too_high", "lr_too_high"],
        "layers": [],
        "onset": [0, 60],
    },
    "alpha_of_another_recipe": {
        "failures": ["optimizer_instability", "exploding_gradients"],
        "causes": ["adapter_scale_too_high", "lr_too_high"],
        "layers": INNER,
        "onset": [0, 6],
    },
    "both_factors_random": {
        "failures": ["optimizer_instability", "exploding_gradients"],
        "causes": ["adapter_scale_too_high", "init_too_large"],
        "layers": INNER,
        "onset": [0, 0],
    },
    "rate_restart": {
        "failures": ["optimizer_instability", "exploding_gradients"],
        "causes": ["scheduler_misstepped", "lr_too_high"],
        "layers": [],
        "onset": [120, 124],
    },
}
NOTES, BAR = 24, 6


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, r: int, alpha: float, spread: float):
        super().__init__()
        self.base = base
        self.A = nn.Parameter(torch.randn(r, base.in_features) / base.in_features**0.5)
        self.B = nn.Parameter(spread * torch.randn(base.out_features, r))
        self.scaling = alpha / r

    def forward(self, x):
        return self.base(x) + self.scaling * (x @ self.A.T @ self.B.T)


class Melody(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.note = nn.Embedding(NOTES, 16)
        self.trunk = nn.ModuleList([nn.Linear(16 * BAR, width), nn.Linear(width, width), nn.Linear(width, width)])
        self.next = nn.Linear(width, NOTES)

    def forward(self, bar):
        h = self.note(bar).flatten(1)
        for layer in self.trunk:
            h = F.gelu(layer(h))
        return self.next(h)


def tunes(n, composer=False):
    """Folk tunes keep to the low half of the notes; the composer writes in the upper one, by another rule."""
    bar = torch.randint(0, 12, (n, BAR))
    if not composer:
        return bar, (bar[:, -1] + 3 * (bar[:, 0] > 5)) % 12
    answer = 12 + (bar[:, -1] + 2) % 12
    return torch.where(torch.rand(n, BAR) < 0.7, bar + 12, bar), answer


def loss_of(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def accuracy(model, batch):
    with torch.no_grad():
        return (model(batch[0]).argmax(1) == batch[1]).float().mean().item()


def pretrained():
    model = Melody()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(450):
        optimizer.zero_grad()
        loss_of(model, tunes(64)).backward()
        optimizer.step()
    return model


def train(watch, fixed=False, seed=0, fault="full_tune_only_new", severity=1.0):
    torch.manual_seed(seed)
    on = "" if fixed else fault
    model = pretrained()
    folk, style = tunes(500), tunes(500, composer=True)
    before = accuracy(model, folk)
    lora = fault != "full_tune_only_new"
    if lora:
        model.requires_grad_(False)
        alpha = 4096.0 * severity if on == "alpha_of_another_recipe" else 32.0
        spread = 2.0 * severity if on == "both_factors_random" else 0.0
        for i in range(3):
            model.trunk[i] = LoRALinear(model.trunk[i], 16, alpha, spread)
        model.next.requires_grad_(True)
    rate = {"full_tune_only_new": 1e-2 * severity, "lora_only_new_high_rate": 2e-2 * severity}.get(on, 2e-3)
    replay = fixed or "only_new" not in fault
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
    curve, old = [], []
    with watch(model) as dbg:
        for step in range(240):
            if on == "rate_restart" and step == 120:
                for group in optimizer.param_groups:
                    group["lr"] = 0.8 * severity
            batch = tunes(48, composer=True)
            if replay:
                batch = tuple(torch.cat(pair) for pair in zip(batch, tunes(48)))
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            curve.append(loss.item())
            if step % 20 == 0:
                with torch.no_grad():
                    old.append(loss_of(model, folk).item())
                dbg.record_metric("folk_loss", old[-1])
    return {"loss": curve, "old": old, "before": before, "folk": accuracy(model, folk), "style": accuracy(model, style)}


def harmed(result):
    return not (result["folk"] > 0.7 and result["style"] > 0.55)
