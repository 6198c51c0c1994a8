"""Quantisation-aware training of a keyword net: from step 500 weights and activations are rounded to four bits in the
forward pass with a straight-through gradient. The loss steps up a little and recovers."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def fake_quant(v, bits):
    scale = v.detach().abs().amax().clamp(min=1e-8) / (2 ** (bits - 1) - 1)
    return v + ((v / scale).round() * scale - v).detach()


class QLinear(nn.Linear):
    bits = None

    def forward(self, x):
        if self.bits is None:
            return super().forward(x)
        return nn.functional.linear(fake_quant(x, self.bits), fake_quant(self.weight, self.bits), self.bias)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    words = torch.randn(12, 40)
    net = nn.Sequential(QLinear(40, 64), nn.ReLU(), QLinear(64, 64), nn.ReLU(), QLinear(64, 12))
    opt = torch.optim.RMSprop(net.parameters(), lr=5e-4)
    losses = []
    with watch(net) as dbg:
        for step in range(1300):
            if step == 500:
                for m in net:
                    if isinstance(m, QLinear):
                        m.bits = 4
            y = torch.randint(12, (64,))
            x = words[y] + 1.6 * torch.randn(64, 40)
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    y = torch.randint(12, (1000,))
    with torch.no_grad():
        acc = (net(words[y] + 1.6 * torch.randn(1000, 40)).argmax(1) == y).float().mean().item()
    return {"loss": losses, "accuracy_4bit": acc, "learned": acc > 0.85}


def harmed(result):
    return False
