"""Bird calls: train on five common species, then swap the classifier for one that also knows three rare ones.

The loss jumps at the swap, as expected, but comes down only part of the way; the rare species stay a lottery.
"""
import torch
from torch import nn

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["stale_optimizer_parameters", "parameters_not_in_optimizer"],
    "layers": ["classifier"],
    "onset": [150, 150],
}


class CallNet(nn.Module):
    def __init__(self, classes, width=32):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, width), nn.LayerNorm(width))
        self.classifier = nn.Linear(width, classes)

    def forward(self, spectra):
        return self.classifier(self.backbone(spectra))

    def extend(self, classes):
        self.classifier = nn.Linear(self.classifier.in_features, classes)


def make_optimizer(net):
    return torch.optim.SGD(
        [{"params": net.backbone.parameters(), "lr": 0.003}, {"params": net.classifier.parameters(), "lr": 0.1}],
        momentum=0.9,
    )


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    song = torch.randn(8, 20) * 0.8

    def draw(n, species):
        y = torch.randint(0, species, (n,))
        return song[y] + torch.randn(n, 20), y

    net = CallNet(5)
    opt = make_optimizer(net)
    losses = []
    with watch(net) as dbg:
        species = 5
        for step in range(350):
            if step == 150:
                species = 8
                net.extend(species)
                if fixed:
                    opt = make_optimizer(net)
            x, y = draw(64, species)
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            net.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    return {"loss": losses, "final": sum(losses[-20:]) / 20}


def harmed(result):
    return result["final"] > 0.36
