"""Fish species from sonar returns with learned query vectors that read the echo. The list of
parameters is sorted by name into decay and no decay. Accuracy stays mediocre."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["parameters_not_in_optimizer"],
    "layers": ["echo", "reader", "reader.key", "reader.value", "reader.norm"],
    "onset": [0, 0],
}
SPECIES = 6


class Reader(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Parameter(0.1 * torch.randn(4, width))
        self.key, self.value = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width, bias=False)

    def forward(self, x):
        x = self.norm(x)
        share = torch.softmax(self.query @ self.key(x).mT / x.shape[-1] ** 0.5, -1)
        return (share @ self.value(x)).flatten(1)


class SonarNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.echo = nn.Conv1d(1, width, 7, stride=2, bias=False)
        self.reader = Reader(width)
        self.species = nn.Linear(4 * width, SPECIES)

    def forward(self, trace):
        return self.species(self.reader(torch.tanh(self.echo(trace)).mT))


def pings(n, shapes):
    label = torch.randint(0, SPECIES, (n,))
    trace = 0.7 * torch.randn(n, 48)
    start = torch.randint(0, 38, (n,))
    for k in range(10):
        trace[torch.arange(n), start + k] += shapes[label, k]
    return trace[:, None], label


def decay_groups(model, complete):
    chosen = [p for n, p in model.named_parameters() if n.endswith("bias") or n.startswith("species")]
    rest = [p for n, p in model.named_parameters() if n.endswith("weight") and not n.startswith("species")]
    groups = [{"params": chosen, "weight_decay": 0.0}]
    if complete:
        groups.append({"params": rest + [model.reader.query], "weight_decay": 0.01})
    else:
        groups.append({"params": [model.reader.query], "weight_decay": 0.01})
    return groups


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    shapes = 2 * torch.randn(SPECIES, 10)
    net = SonarNet()
    optimizer = torch.optim.AdamW(decay_groups(net, fixed), lr=4e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(450):
            trace, label = pings(64, shapes)
            optimizer.zero_grad()
            loss = F.cross_entropy(net(trace), label)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            dbg.record_loss(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.5
