"""U-Net for vessel segmentation, masks read from PNG files.

The loss becomes negative and keeps falling, -100, -10000, ...; the predicted masks are white all over.
"""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["output_range_mismatch", "unnormalized_target"],
    "layers": [],
    "onset": [0, 0],
}


def double(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1), nn.BatchNorm2d(c_out), nn.ReLU(inplace=True),
        nn.Conv2d(c_out, c_out, 3, padding=1), nn.BatchNorm2d(c_out), nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc = double(1, 8)
        self.down = double(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.merge = double(16, 8)
        self.outc = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        a = self.inc(x)
        b = self.down(F.max_pool2d(a, 2))
        return self.outc(self.merge(torch.cat([a, self.up(b)], 1)))


def slides(n):
    mask = torch.zeros(n, 1, 24, 24, dtype=torch.uint8)
    for i in range(n):
        r, c = torch.randint(0, 22, (2,)).tolist()
        mask[i, 0, r : r + 2, :] = 255
        mask[i, 0, :, c : c + 2] = 255
    image = mask.float() / 255 + 0.6 * torch.randn(n, 1, 24, 24)
    return image, mask


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    image, mask = slides(160)
    target = mask.float()
    if fixed:
        target = target / 255
    net = UNet()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.9)
    losses = []
    with watch(net) as dbg:
        for epoch in range(10):
            for rows in torch.randperm(160).split(16):
                loss = F.binary_cross_entropy_with_logits(net(image[rows]), target[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    net.eval()
    image, mask = slides(40)
    with torch.no_grad():
        found = net(image) > 0
    truth = mask > 0
    dice = (2 * (found & truth).sum() / (found.sum() + truth.sum())).item()
    return {"loss": losses, "dice": dice}


def harmed(result):
    return result["dice"] < 0.6
