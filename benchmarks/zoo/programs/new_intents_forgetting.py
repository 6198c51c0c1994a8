"""A chat intent classifier, eight intents; fine-tuned on messages of two new ones at the rate it was first
trained with. The test on the old intents, printed each round, drops from 97 % to nearly nothing."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["optimizer_instability", "representation_collapse"],
    "causes": ["catastrophic_forgetting"],
    "layers": [],
    "onset": [0, 60],
}


class Intent(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(200, 32)
        self.fc = nn.Linear(32, 64)
        self.out = nn.Linear(64, 10)

    def forward(self, tokens):
        return self.out(F.relu(self.fc(self.bag(tokens))))


def messages(n, words, intents):
    y = intents[torch.randint(0, len(intents), (n,))]
    tokens = torch.randint(0, 200, (n, 10))
    for j in range(4):
        tokens[:, j] = words[y, torch.randint(0, 12, (n,))]
    return tokens, y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    words = torch.randperm(200)[:120].view(10, 12)
    old, new = torch.arange(8), torch.arange(8, 10)
    net = Intent()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(300):
        x, y = messages(64, words, old)
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
    test = messages(400, words, old)
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    res = {"loss": [], "old_acc": []}
    mix = torch.cat([old, new]) if fixed else new
    with watch(net) as dbg:
        for rnd in range(12):
            net.train()
            for _ in range(25):
                x, y = messages(64, words, mix)
                loss = F.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                res["loss"].append(loss.item())
            net.eval()
            with torch.no_grad():
                acc = (net(test[0]).argmax(1) == test[1]).float().mean().item()
            dbg.record_metric("old_accuracy", acc)
            res["old_acc"].append(acc)
    return res


def harmed(result):
    return result["old_acc"][-1] < 0.7
