"""Animals in wide camera-trap frames: a locator proposes where to look, a classifier sees the crop.
Crops stay at the same place in every frame, so only animals that happen to stand there are named."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "vanishing_gradients", "optimizer_instability"],
    "causes": ["detached_graph"],
    "layers": ["locator", "locator.0", "locator.2", "cropper"],
    "onset": [0, 0],
}
WIDTH, CROP, KINDS = 32, 8, 4


class PixelCrop(nn.Module):
    """Cut a window starting at a whole pixel."""

    def forward(self, frame, place):
        start = (place.sigmoid() * (WIDTH - CROP)).long()
        index = start[:, None] + torch.arange(CROP)
        return frame.gather(1, index)


class SmoothCrop(nn.Module):
    """Cut a window by interpolation between pixels."""

    def forward(self, frame, place):
        centre = place.sigmoid()[:, None] * (WIDTH - CROP) + torch.arange(float(CROP))
        grid = torch.arange(float(WIDTH))
        weight = torch.exp(-((centre[..., None] - grid) ** 2) / 0.8)
        weight = weight / weight.sum(-1, keepdim=True)
        return (weight * frame[:, None]).sum(-1)


class CameraTrap(nn.Module):
    def __init__(self, cropper):
        super().__init__()
        self.locator = nn.Sequential(nn.Linear(WIDTH, 48), nn.ReLU(), nn.Linear(48, 1))
        self.cropper = cropper
        self.kind = nn.Sequential(nn.Linear(CROP, 32), nn.ReLU(), nn.Linear(32, KINDS))

    def forward(self, frame):
        return self.kind(self.cropper(frame, self.locator(frame).squeeze(1)))


def frames(n, coat):
    kind = torch.randint(0, KINDS, (n,))
    start = torch.randint(0, WIDTH - CROP, (n, 1))
    frame = 0.2 * torch.randn(n, WIDTH)
    return frame.scatter_add(1, start + torch.arange(CROP), coat[kind]), kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    coat = torch.randn(KINDS, CROP) * 0.8 + 1.2
    net = CameraTrap(SmoothCrop() if fixed else PixelCrop())
    adam = torch.optim.Adam(net.parameters(), lr=5e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(450):
            frame, kind = frames(96, coat)
            loss = nn.functional.cross_entropy(net(frame), kind)
            adam.zero_grad()
            loss.backward()
            adam.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.8
