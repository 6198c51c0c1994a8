"""LoRA on a frozen base; config says alpha=16, r=4, but somebody multiplied instead of dividing. The
adapted model is worse than the base within a few steps and recovers only partly."""
import math

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients"],
    "causes": ["adapter_scale_too_high", "lr_too_high"],
    "layers": ["l1", "l2", "l3"],
    "onset": [0, 8],
}


class WithLora(nn.Module):
    def __init__(self, linear, r, alpha, divide):
        super().__init__()
        self.linear = linear
        for p in self.linear.parameters():
            p.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(r, linear.in_features) / math.sqrt(linear.in_features))
        self.up = nn.Parameter(torch.zeros(linear.out_features, r))
        self.scale = alpha / r if divide else alpha * r

    def forward(self, x):
        return self.linear(x) + self.scale * F.linear(F.linear(x, self.down), self.up)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(20, 96), nn.Linear(96, 96), nn.Linear(96, 6)

    def forward(self, x):
        return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    centres = 1.2 * torch.randn(18, 20)
    rot = torch.linalg.qr(torch.eye(20) + 0.12 * torch.randn(20, 20))[0]

    def draw(n, moved):
        k = torch.randint(0, 18, (n,))
        x = centres[k] + 0.5 * torch.randn(n, 20)
        return (x @ rot if moved else x), k % 6

    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(300):
        x, y = draw(128, False)
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()

    for name in ("l1", "l2", "l3"):
        setattr(net, name, WithLora(getattr(net, name), r=4, alpha=16, divide=fixed))
    opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
    losses = []
    with watch(net) as dbg:
        for _ in range(250):
            x, y = draw(64, True)
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "peak": max(losses)}


def harmed(result):
    return result["peak"] > 4 * result["loss"][0] or sum(result["loss"][-20:]) / 20 > 0.8
