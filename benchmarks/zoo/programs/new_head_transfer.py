"""Transfer to eight flower kinds: pre-train on four, swap the head, fine-tune. The backbone moves,
the new head seems to do nothing; loss stays high."""
import torch
import torch.nn as nn
import torch.nn.functional as F

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["stale_optimizer_parameters", "parameters_not_in_optimizer"],
    "layers": ["head"],
    "onset": [0, 0],
}


class FlowerNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.features(x))


def flowers(n, centres, classes):
    y = torch.randint(0, classes, (n,))
    return centres[y] + 1.2 * torch.randn(n, 24), y


def replace_head(model, classes):
    model.head = nn.Linear(16, classes)
    nn.init.normal_(model.head.weight, std=0.01)
    nn.init.zeros_(model.head.bias)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    centres = torch.randn(12, 24)
    model = FlowerNet(4)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(150):
        x, y = flowers(64, centres, 4)
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()

    if fixed:
        replace_head(model, 8)
        opt = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9)
    else:
        opt = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9)
        replace_head(model, 8)
    result = {"loss": []}
    with watch(model) as dbg:
        for _ in range(400):
            x, y = flowers(64, centres[4:], 8)
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            result["loss"].append(loss.item())
    return result


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 1.0
