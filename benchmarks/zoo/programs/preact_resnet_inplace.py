"""Pre-activation ResNet without normalisation for signals; F.relu_ saved memory. Signed information never
arrives at the head and the error stays twice that of the reference implementation."""
import torch
import torch.nn as nn
import torch.nn.functional as F

ARCHITECTURE = "ResNet"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["inplace_on_skip_path"],
    "layers": ["block1", "block2", "block3"] + [f"block{i}.{n}" for i in (1, 2, 3) for n in ("act", "conv1", "conv2")],
    "onset": [0, 0],
}


class PreAct(nn.Module):
    def __init__(self, ch, inplace):
        super().__init__()
        self.act = nn.ReLU(inplace=inplace)
        self.conv1 = nn.Conv1d(ch, ch, 3, padding=1, bias=False)
        self.conv2 = nn.Conv1d(ch, ch, 3, padding=1, bias=False)
        nn.init.normal_(self.conv2.weight, std=0.01)

    def forward(self, x):
        out = self.conv1(self.act(x))
        out = self.conv2(F.relu(out))
        return x + out


class SignalNet(nn.Module):
    def __init__(self, ch=3, inplace=True):
        super().__init__()
        self.stem = nn.Conv1d(2, ch, 3, padding=1, bias=False)
        self.block1, self.block2, self.block3 = (PreAct(ch, inplace) for _ in range(3))
        self.out = nn.Conv1d(ch, 2, 3, padding=1, bias=False)

    def forward(self, x):
        return self.out(self.block3(self.block2(self.block1(self.stem(x)))))


def signals(n):
    t = torch.linspace(0, 6.28, 48)
    f = 1 + 4 * torch.rand(n, 2, 1)
    clean = torch.sin(f * t + 6.28 * torch.rand(n, 2, 1)) * 2
    mixed = torch.stack([clean[:, 0] + 0.4 * clean[:, 1], clean[:, 1] - 0.6 * clean[:, 0]], 1)
    return mixed, clean


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = SignalNet(inplace=not fixed)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    history = []
    with watch(net) as dbg:
        for it in range(350):
            x, y = signals(32)
            loss = F.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            history.append(loss.item())
    return {"loss": history, "end": sum(history[-20:]) / 20}


def harmed(result):
    return result["end"] > 0.09
