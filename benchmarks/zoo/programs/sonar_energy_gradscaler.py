"""Sea-floor types from sonar echoes with float16 and a gradient scaler. No step is ever taken: the
weights are those of the first minute, and the scale printed at the end is a tiny fraction."""
import torch
from torch import nn

TRUTH = {
    "failures": ["numerical_error", "training_wiring"],
    "causes": ["loss_scale_collapse", "half_precision_overflow"],
    "layers": ["energy"],
    "onset": [0, 0],
}


class BandEnergy(nn.Module):
    """Energy of the echo in each band."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, echo):
        return echo.to(self.dtype).square().sum(-1)


class FloorNet(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.filter = nn.Conv1d(1, 8, 9, stride=2)
        self.energy = BandEnergy(dtype)
        self.norm = nn.BatchNorm1d(8)
        self.floor = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, echo):
        with torch.autocast("cpu", dtype=torch.float16):
            bands = self.filter(echo)
        energy = self.energy(bands).float()
        return self.floor(self.norm(torch.log1p(energy)))


def echoes(n, length=80):
    floor = torch.randint(0, 3, (n,))
    t = torch.arange(float(length))
    gain = torch.exp(0.3 * torch.randn(n, 1))
    wave = torch.sin(torch.tensor([0.3, 0.9, 1.6])[floor][:, None] * t + 6.28 * torch.rand(n, 1))
    return 150 * gain[..., None] * (wave + 0.8 * torch.randn(n, length))[:, None], floor


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = FloorNet(torch.float32 if fixed else torch.float16)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = []
    with watch(net) as dbg:
        for step in range(150):
            echo, floor = echoes(48)
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(net(echo), floor)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "scale": scaler.get_scale()}


def harmed(result):
    return result["scale"] < 1.0 or not sum(result["loss"][-20:]) / 20 < 0.6
