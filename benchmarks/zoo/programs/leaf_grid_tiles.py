"""Three leaf diseases from small photo tiles. Every loss value is about log(3), from the first to the last."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["data_anomaly"],
    "causes": ["constant_input"],
    "layers": [],
    "onset": [0, 0],
}


def to_unit(image, fixed):
    """Bytes to the unit range."""
    return image / 255 if fixed else (image // 255).float()


class Tiles(Dataset):
    def __init__(self, count, fixed, generator):
        self.fixed = fixed
        self.kind = torch.randint(0, 3, (count,), generator=generator)
        rows, cols = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
        stripes = torch.stack([rows % 4 < 2, cols % 4 < 2, (rows + cols) % 4 < 2]).float()
        noise = torch.rand(count, 3, 16, 16, generator=generator)
        self.image = (60 + 90 * stripes[self.kind][:, None] + 90 * noise).to(torch.uint8)

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, i):
        image = to_unit(self.image[i], self.fixed)
        if i % 2:
            image = image.flip(-1) if self.kind[i] != 2 else image
        return image, self.kind[i]


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU(),
        nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.GroupNorm(4, 24), nn.SiLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 3),
    )


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    data = Tiles(1024, fixed, torch.Generator().manual_seed(seed))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = network()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(6):
            for image, kind in loader:
                opt.zero_grad(set_to_none=True)
                loss = F.cross_entropy(model(image), kind)
                loss.backward()
                opt.step()
                dbg.record_loss(loss)
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.7
