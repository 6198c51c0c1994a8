"""Leaf shapes with a small conv net under mixed precision. Switching AMP on 'broke' training: the same
recipe in fp32 reaches 90 %, under AMP the accuracy stays near chance although nothing is NaN."""
import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring", "vanishing_gradients"],
    "causes": ["clip_before_unscale"],
    "layers": [],
    "onset": [0, 0],
}


def leaves(n):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij")
    kind = torch.randint(0, 4, (n,))
    angle = torch.rand(n, 1, 1) * 6.28
    u = xx * angle.cos() + yy * angle.sin()
    v = -xx * angle.sin() + yy * angle.cos()
    size = 0.5 + 0.3 * torch.rand(n, 1, 1)
    shapes = torch.stack([
        (u / size) ** 2 + (v / size) ** 2 < 1,
        (u / size) ** 2 + (3 * v / size) ** 2 < 1,
        u.abs() + v.abs() < size,
        (u.abs() < size / 4) | (v.abs() < size / 4),
    ], 1).float()
    img = shapes[torch.arange(n), kind] + 0.15 * torch.randn(n, 16, 16)
    return img.unsqueeze(1) - 0.3, kind


def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, 4),
    )


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = build()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    criterion = nn.CrossEntropyLoss()
    running = []
    with watch(net) as dbg:
        for step in range(200):
            images, target = leaves(32)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = criterion(net(images), target)
            scaler.scale(loss).backward()
            if fixed:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=1.0)
            scaler.step(optimizer)
            scaler.update()
            running.append(loss.item())
            dbg.record_loss(loss.item())
    net.eval()
    with torch.no_grad():
        images, target = leaves(500)
        acc = (net(images).argmax(1) == target).float().mean().item()
    return {"loss": running, "acc": acc, "end": sum(running[-20:]) / 20}


def harmed(result):
    return result["end"] > 0.6
