"""Customer churn from categorical columns (entity embeddings) and a few numbers, with a polynomial lr decay.

A fine start, then the validation loss is dead flat for the rest of the run, far from what boosted trees reach.
"""
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

ARCHITECTURE = "Embedding / factorisation"
TRUTH = {
    "failures": ["optimizer_instability", "training_wiring"],
    "causes": ["lr_decayed_to_zero", "scheduler_misstepped"],
    "layers": [],
    "onset": [0, 16],
}
CARDS = (12, 7, 30)
EPOCHS = 16


class EntityNet(nn.Module):
    def __init__(self, cards, n_num, width=64):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(k, 6) for k in cards)
        self.norm = nn.BatchNorm1d(n_num)
        self.body = nn.Sequential(
            nn.Linear(6 * len(cards) + n_num, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def forward(self, cats, nums):
        parts = [t(cats[:, i]) for i, t in enumerate(self.tables)] + [self.norm(nums)]
        return self.body(torch.cat(parts, dim=1))[:, 0]


def customers(n):
    g = torch.Generator().manual_seed(77)
    effect = [torch.randn(k, generator=g) for k in CARDS]
    cats = torch.stack([torch.randint(0, k, (n,), generator=g) for k in CARDS], 1)
    nums = torch.randn(n, 4, generator=g) * torch.tensor([1.0, 2.0, 0.5, 1.0])
    score = sum(e[cats[:, i]] for i, e in enumerate(effect)) + nums[:, 0] * effect[1][cats[:, 1]] + nums[:, 1] * 0.7
    return cats, nums, (score + 0.3 * torch.randn(n, generator=g) > 0).float()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    cats, nums, churned = customers(2560)
    n_train, bs = 2048, 64
    per_epoch = n_train // bs
    net = EntityNet(CARDS, 4)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    horizon = EPOCHS * per_epoch if fixed else EPOCHS
    sched = LambdaLR(opt, lambda it: max(0.0, 1 - it / horizon) ** 0.9)
    bce = nn.BCEWithLogitsLoss()
    losses = []
    with watch(net) as dbg:
        for epoch in range(EPOCHS):
            order = torch.randperm(n_train)
            for k in range(per_epoch):
                rows = order[k * bs : (k + 1) * bs]
                opt.zero_grad()
                loss = bce(net(cats[rows], nums[rows]), churned[rows])
                loss.backward()
                opt.step()
                sched.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
        net.eval()
        with torch.no_grad():
            guess = net(cats[n_train:], nums[n_train:]) > 0
    acc = (guess == (churned[n_train:] > 0.5)).float().mean().item()
    return {"loss": losses, "accuracy": acc}


def harmed(result):
    return result["accuracy"] < 0.8
