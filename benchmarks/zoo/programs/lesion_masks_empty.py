"""Lesion segmentation: loss falls to 0.000 in the first epoch, but every predicted mask is empty."""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["data_anomaly", "objective_mismatch"],
    "causes": ["degenerate_targets"],
    "layers": [],
    "onset": [0, 0],
}


class SegNet(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.enc1 = nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.InstanceNorm2d(c, affine=True), nn.LeakyReLU(0.01))
        self.enc2 = nn.Sequential(nn.Conv2d(c, 2 * c, 3, 2, 1), nn.InstanceNorm2d(2 * c, affine=True), nn.LeakyReLU(0.01))
        self.dec = nn.Conv2d(3 * c, c, 3, padding=1)
        self.final = nn.Conv2d(c, 2, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = F.interpolate(self.enc2(a), scale_factor=2)
        return self.final(F.leaky_relu(self.dec(torch.cat([a, b], 1)), 0.01))


class Scans(torch.utils.data.Dataset):
    def __init__(self, n, threshold):
        self.image = 0.7 * torch.randn(n, 1, 20, 20)
        self.mask = torch.zeros(n, 20, 20)
        for i in range(n):
            r, c = torch.randint(2, 12, (2,)).tolist()
            self.mask[i, r : r + 6, c : c + 6] = 1.0
        self.image += 1.5 * self.mask[:, None]
        self.threshold = threshold

    def __len__(self):
        return len(self.image)

    def __getitem__(self, i):
        return self.image[i], (self.mask[i] > self.threshold).long()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    data = Scans(240, threshold=0.5 if fixed else 127)
    loader = torch.utils.data.DataLoader(data, batch_size=12, shuffle=True)
    net = SegNet()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
    losses = []
    with watch(net) as dbg:
        for epoch in range(5):
            for image, mask in loader:
                loss = F.cross_entropy(net(image), mask)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                dbg.record_loss(loss.item())
            sched.step()
    with torch.no_grad():
        found = net(data.image).argmax(1) == 1
    truth = data.mask > 0.5
    iou = ((found & truth).sum() / (found | truth).sum()).item()
    return {"loss": losses, "iou": iou}


def harmed(result):
    return result["iou"] < 0.5
