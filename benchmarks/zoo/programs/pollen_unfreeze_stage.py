"""Pollen grains under the microscope: first only the classifier on a random convolutional stem, then, from
the tenth epoch, everything. The unfreezing was to bring the big gain; accuracy stays where the first stage left it."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["parameters_not_in_optimizer"],
    "layers": ["stem", "stem.0", "stem.1", "stem.3", "stem.4"],
    "onset": [500, 500],
}


class GrainNet(nn.Module):
    def __init__(self, species=6):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.GroupNorm(2, 8), nn.ReLU(),
            nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.GroupNorm(3, 12), nn.ReLU(),
        )
        self.classifier = nn.Linear(12, species)

    def forward(self, x):
        return self.classifier(self.stem(x).mean((2, 3)))


def grains(n, species=6):
    kind = torch.randint(species, (n,))
    yy, xx = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    angle = kind.float() * torch.pi / species
    phase = torch.rand(n) * 6.28
    wave = (xx * angle.cos()[:, None, None] + yy * angle.sin()[:, None, None]) * 1.6 + phase[:, None, None]
    return (wave.sin() + 0.5 * torch.randn(n, 12, 12))[:, None], kind


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        hit = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return hit


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = grains(1600)
    vx, vy = grains(500)
    model = GrainNet()
    for p in model.stem.parameters():
        p.requires_grad = False
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    losses, val = [], []
    with watch(model) as dbg:
        for epoch in range(30):
            if epoch == 10:
                for p in model.stem.parameters():
                    p.requires_grad = True
                if fixed:
                    optimizer.add_param_group({"params": list(model.stem.parameters()), "lr": 5e-3})
            for idx in torch.randperm(len(x)).split(32):
                loss = F.cross_entropy(model(x[idx]), y[idx])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                dbg.record_loss(losses[-1])
            val.append(accuracy(model, vx, vy))
    return {"loss": losses, "val": val}


def harmed(result):
    return result["val"][-1] < 0.85
