"""Cracks in concrete, one mask per picture, read from images like the picture itself. The loss falls to zero
in the first hundred batches; the masks it draws are empty."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["data_anomaly", "objective_mismatch"],
    "causes": ["degenerate_targets"],
    "layers": [],
    "onset": [0, 0],
}


def to_tensor(picture):
    return picture.float() / 255


class Cracks(Dataset):
    def __init__(self, count, fixed, seed):
        g = torch.Generator().manual_seed(seed)
        self.fixed = fixed
        self.picture = torch.randint(90, 170, (count, 1, 16, 16), generator=g, dtype=torch.uint8)
        self.mask = torch.zeros(count, 1, 16, 16, dtype=torch.uint8)
        at = torch.randint(1, 14, (count,), generator=g).tolist()
        for i, c in enumerate(at):
            if i % 2:
                self.mask[i, 0, :, c : c + 2] = 255
            else:
                self.mask[i, 0, c : c + 2, :] = 255
        self.picture[self.mask > 0] -= 80

    def __len__(self):
        return len(self.mask)

    def __getitem__(self, i):
        picture, mask = to_tensor(self.picture[i]), to_tensor(self.mask[i])
        return (picture - 0.45) * 5, (mask > (0.5 if self.fixed else 127)).float()


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 12, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(12, 24, 3, padding=1)
        self.up = nn.ConvTranspose2d(24, 12, 4, stride=2, padding=1)
        self.last = nn.Conv2d(13, 1, 3, padding=1)

    def forward(self, x):
        h = F.silu(self.mid(F.silu(self.down(x))))
        return self.last(torch.cat([F.silu(self.up(h)), x], 1))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    data = Cracks(512, fixed, seed)
    model = Segmenter()
    opt = torch.optim.NAdam(model.parameters(), lr=4e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(9):
            for picture, mask in DataLoader(data, 16, shuffle=True):
                loss = F.binary_cross_entropy_with_logits(model(picture), mask)
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    with torch.no_grad():
        drawn = model((to_tensor(data.picture) - 0.45) * 5) > 0
    truth = data.mask > 0
    return {"loss": losses, "iou": ((drawn & truth).sum() / (drawn | truth).sum()).item()}


def harmed(result):
    return result["iou"] < 0.5
