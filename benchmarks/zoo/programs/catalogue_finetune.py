"""A classifier trained on catalogue photos is fine-tuned on few phone photos of two of the classes; afterwards it has
lost the other classes entirely, and recognises even the catalogue photos of the two badly."""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["optimizer_instability", "representation_collapse"],
    "causes": ["catastrophic_forgetting", "lr_too_high"],
    "layers": [],
    "onset": None,
}


class PhotoNet(nn.Module):
    def __init__(self, classes=8):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.gn1 = nn.GroupNorm(4, 16)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.gn2 = nn.GroupNorm(4, 32)
        self.fc = nn.Linear(32 * 25, classes)

    def forward(self, x):
        x = F.relu(self.gn1(self.conv1(x)))
        x = F.relu(self.gn2(self.conv2(x)))
        return self.fc(x.flatten(1))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    proto = F.avg_pool2d(torch.randn(8, 1, 10, 10), 3, 1, 1) * 2

    def photos(n, classes, phone):
        y = torch.randint(0, classes, (n,))
        x = proto[y] + 0.7 * torch.randn(n, 1, 10, 10)
        if phone:
            x = 0.7 * x.flip(3) + 0.3
        return x, y

    net = PhotoNet()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(200):
        x, y = photos(64, 8, False)
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
    xo, yo = photos(400, 8, False)
    with torch.no_grad():
        before = (net(xo).argmax(1) == yo).float().mean().item()

    opt = torch.optim.AdamW(net.parameters(), lr=2e-4 if fixed else 1e-2)
    losses, old_losses = [], []
    xp, yp = photos(96, 2, True)
    with watch(net) as dbg:
        for step in range(120):
            rows = torch.randint(0, 96, (24,))
            x, y = xp[rows], yp[rows]
            if fixed:
                xm, ym = photos(24, 8, False)
                x, y = torch.cat([x, xm]), torch.cat([y, ym])
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            if step % 20 == 19:
                net.eval()
                with torch.no_grad():
                    old_losses.append(F.cross_entropy(net(xo), yo).item())
                net.train()
    with torch.no_grad():
        after = (net(xo).argmax(1) == yo).float().mean().item()
    return {"loss": losses, "before": before, "after": after, "old_loss": old_losses}


def harmed(result):
    return result["after"] < 0.7 * result["before"]
