"""Lane segmentation on small images: eight micro-batches per update because 'the card is small'.

The run with a real batch of 32 was fine; with micro-batches the same lr makes the loss jump about and the IoU stays low.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability", "exploding_gradients"],
    "causes": ["accumulation_unscaled"],
    "layers": [],
    "onset": [0, 0],
}
MICRO, PARTS = 4, 8


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(inplace=True))


class TinyUNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.down1, self.down2 = block(3, c), block(c, 2 * c)
        self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.merge = block(2 * c, c)
        self.mask_logits = nn.Conv2d(c, 1, 1)

    def forward(self, img):
        a = self.down1(img)
        b = self.down2(F.max_pool2d(a, 2))
        m = self.merge(torch.cat([self.up(b), a], 1))
        return {"mask": self.mask_logits(m)}


def road(n, side=16):
    xs = torch.arange(side).float()
    x0 = torch.rand(n, 1, 1) * side
    slope = torch.rand(n, 1, 1) * 1.6 - 0.8
    centre = x0 + slope * (xs.view(1, -1, 1) - side / 2)
    lane = ((xs.view(1, 1, -1) - centre).abs() < 1.5).float()
    img = torch.randn(n, 3, side, side) * 0.7 + lane[:, None] * torch.tensor([1.6, 1.2, -0.8]).view(1, 3, 1, 1)
    return img, lane[:, None]


def iou(net, img, lane):
    with torch.no_grad():
        hit = net(img)["mask"] > 0
    lane = lane > 0.5
    return ((hit & lane).sum() / (hit | lane).sum().clamp(min=1)).item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    images, masks = road(512)
    test = road(128)
    net = TinyUNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.25, momentum=0.9)
    divisor = PARTS if fixed else 1
    history = []
    with watch(net) as dbg:
        for step in range(120):
            opt.zero_grad(set_to_none=True)
            shown = 0.0
            for _ in range(PARTS):
                pick = torch.randint(0, len(images), (MICRO,))
                out = net(images[pick])["mask"]
                loss = F.binary_cross_entropy_with_logits(out, masks[pick])
                (loss / divisor).backward()
                shown += loss.item() / PARTS
            opt.step()
            dbg.record_loss(shown)
            history.append(shown)
    return {"loss": history, "final": sum(history[-10:]) / 10, "iou": iou(net, *test)}


def harmed(result):
    return not result["iou"] > 0.6
