"""Skip-gram with negative samples and sparse gradients: most rows of the tables get nothing in any one step."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Embedding / factorisation"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
WORDS, TOPICS, NEG = 400, 8, 6


class SkipGram(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.centre = nn.Embedding(WORDS, d, sparse=True)
        self.context = nn.Embedding(WORDS, d, sparse=True)
        nn.init.uniform_(self.centre.weight, -0.5 / d, 0.5 / d)
        nn.init.zeros_(self.context.weight)

    def forward(self, c, o, negatives):
        v = self.centre(c)
        good = F.logsigmoid((v * self.context(o)).sum(-1))
        bad = F.logsigmoid(-torch.bmm(self.context(negatives), v[..., None]).squeeze(-1)).sum(-1)
        return -(good + bad).mean()


def pairs(n):
    topic = torch.randint(0, TOPICS, (n,))
    pool = WORDS // TOPICS
    draw = lambda: topic * pool + (pool * torch.rand(n).pow(2)).long()
    return draw(), draw()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = SkipGram()
    opt = torch.optim.SparseAdam(list(model.parameters()), lr=0.02)
    losses = []
    with watch(model) as dbg:
        for step in range(400):
            c, o = pairs(96)
            loss = model(c, o, torch.randint(0, WORDS, (96, NEG)))
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    v = F.normalize(model.centre.weight.detach(), dim=1)
    topic = torch.arange(WORDS) // (WORDS // TOPICS)
    near = (v @ v.T - 2 * torch.eye(WORDS)).argmax(1)
    purity = (topic[near] == topic).float().mean().item()
    return {"loss": losses, "purity": purity, "learned": purity > 0.7 and losses[-1] < 0.6 * losses[0]}


def harmed(result):
    return False
