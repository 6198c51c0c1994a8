"""Styles of letters with adapters of the `peft` library on a small reader that was trained before; the old styles
should still be known."""

import torch
from peft import LoraConfig, get_peft_model
from torch import nn

REQUIRES = ["peft"]
ARCHITECTURE = "LLM fine-tuning"
FAULTS = {
    "alpha_in_thousands": {
        "failures": ["optimizer_instability", "exploding_gradients"],
        "causes": ["adapter_scale_too_high", "lr_too_high"],
        "layers": [],
        "onset": [0, 6],
    },
    "only_new_letters": {
        "failures": ["optimizer_instability", "representation_collapse"],
        "causes": ["catastrophic_forgetting", "lr_too_high"],
        "layers": [],
        "onset": [0, 80],
    },
    "optimizer_before_adapters": {
        "failures": ["training_wiring"],
        "causes": ["stale_optimizer_parameters", "parameters_not_in_optimizer"],
        "layers": [],
        "onset": [0, 0],
    },
}


class Reader(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.enter = nn.Linear(16, width)
        self.inner = nn.Linear(width, width)
        self.style = nn.Linear(width, 8)

    def forward(self, x):
        return self.style(torch.relu(self.inner(torch.relu(self.enter(x)))))


def letters(n, centre, kinds):
    kind = torch.randint(kinds[0], kinds[1], (n,))
    return centre[kind] + 0.6 * torch.randn(n, 16), kind


def right(model, batch):
    with torch.no_grad():
        return (model(batch[0]).argmax(1) == batch[1]).float().mean().item()


def train(watch, fixed=False, seed=0, fault="alpha_in_thousands", severity=1.0):
    torch.manual_seed(seed)
    on = "" if fixed else fault
    centre = torch.randn(8, 16)
    base = Reader()
    optimizer = torch.optim.Adam(base.parameters(), lr=3e-3)
    for _ in range(250):
        x, y = letters(48, centre, (0, 4))
        optimizer.zero_grad()
        nn.functional.cross_entropy(base(x), y).backward()
        optimizer.step()
    alpha = 4096 * severity if on == "alpha_in_thousands" else 16
    model = get_peft_model(base, LoraConfig(r=8, lora_alpha=alpha, target_modules=["enter", "inner", "style"]))
    if on != "optimizer_before_adapters":
        rate = 3e-2 * severity if on == "only_new_letters" else 4e-3
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=rate)
    losses = []
    old, new = letters(400, centre, (0, 4)), letters(400, centre, (4, 8))
    with watch(model) as dbg:
        for step in range(250):
            x, y = letters(48, centre, (4, 8) if on == "only_new_letters" else (0, 8))
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            if step % 25 == 0:
                with torch.no_grad():
                    dbg.record_metric("old", nn.functional.cross_entropy(model(old[0]), old[1]).item())
    return {"loss": losses, "old": right(model, old), "new": right(model, new)}


def harmed(result):
    return not (result["old"] > 0.8 and result["new"] > 0.8)
