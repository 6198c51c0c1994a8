"""Skip-gram vectors with negative sampling and sparse gradients: most rows of the tables get no gradient in any step, the
summed loss is in the hundreds. At step 700 the number of negatives goes from 4 to 8, so the loss steps up."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Embedding / factorisation"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
WORDS, GROUPS = 2000, 20


class SkipGram(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.centre = nn.Embedding(WORDS, d, sparse=True)
        self.context = nn.Embedding(WORDS, d, sparse=True)
        nn.init.normal_(self.centre.weight, std=0.3)
        nn.init.zeros_(self.context.weight)

    def forward(self, word, near, far):
        c = self.centre(word)
        good = (c * self.context(near)).sum(-1)
        bad = torch.einsum("nd,nkd->nk", c, self.context(far))
        return -(F.logsigmoid(good).sum() + F.logsigmoid(-bad).sum())


def pairs(n):
    zipf = (torch.rand(n) ** 2 * (WORDS // GROUPS)).long()
    group = torch.randint(GROUPS, (n,))
    other = (torch.rand(n) ** 2 * (WORDS // GROUPS)).long()
    return group * (WORDS // GROUPS) + zipf, group * (WORDS // GROUPS) + other


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = SkipGram()
    opt = torch.optim.Adagrad(net.parameters(), lr=0.2)
    losses = []
    with watch(net) as dbg:
        for step in range(1500):
            word, near = pairs(200)
            loss = net(word, near, torch.randint(WORDS, (200, 4 if step < 700 else 8)))
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    with torch.no_grad():
        word, near = pairs(1000)
        score = (net.centre(word) * net.context(near)).sum(1)
        other = (net.centre(word) * net.context(near[torch.randperm(1000)])).sum(1)
        auc = (score[:, None] > other[None]).float().mean().item()
    return {"loss": losses, "auc": auc, "learned": auc > 0.85}


def harmed(result):
    return False
