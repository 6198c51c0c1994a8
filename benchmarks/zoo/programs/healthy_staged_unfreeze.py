"""Transfer to new flower petals: head first, then the last block, then everything, each with its own smaller
learning rate. A pretrained trunk comes from a related task trained in the same file."""
import torch
from torch import nn

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Petals(nn.Module):
    def __init__(self):
        super().__init__()
        self.low = nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.GELU())
        self.high = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        return self.head(self.high(self.low(x)))


def flowers(n, w):
    x = torch.randn(n, 20)
    return x, torch.tanh(x @ w[:, :10]).mm(w[:10, 10:15]).argmax(1)


def pretrained(w):
    model = Petals()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(300):
        x, y = flowers(64, w)
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return model


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    w = torch.randn(20, 15)
    model = pretrained(w)
    model.head = nn.Linear(64, 5)
    task = w + 0.5 * torch.randn_like(w)
    for p in model.parameters():
        p.requires_grad_(False)
    for p in model.head.parameters():
        p.requires_grad_(True)
    opt = torch.optim.AdamW(model.head.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(1500):
            for at, part, lr in ((400, model.high, 1e-3), (800, model.low, 5e-4)):
                if step == at:
                    for p in part.parameters():
                        p.requires_grad_(True)
                    opt.add_param_group({"params": list(part.parameters()), "lr": lr})
            x, y = flowers(64, task)
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    stage = [sum(losses[a:b]) / (b - a) for a, b in ((0, 30), (350, 400), (750, 800), (1400, 1500))]
    return {"loss": losses, "stages": stage, "learned": stage[3] < 0.8 * stage[1]}


def harmed(result):
    return False
