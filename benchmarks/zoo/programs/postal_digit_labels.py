"""Postal codes: digit groups numbered 1 to 9 by the annotators, a network with nine outputs. Training
starts normally and the script then stops with an index error that names no line of the user's."""
import torch
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["label_index_mismatch"],
    "layers": [],
    "onset": [23, 23],
}
GROUPS = 9


class GroupNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Linear(10, 24)
        self.columns = nn.Linear(8, 16)
        self.group = nn.Linear(24 * 16, GROUPS)

    def forward(self, scan):
        h = torch.relu(self.rows(scan)).transpose(1, 2)
        return self.group(torch.relu(self.columns(h)).flatten(1))


def scans(n, glyph):
    group = torch.randint(1, GROUPS, (n,))
    group[23 * 32 :] = torch.randint(1, GROUPS + 1, (n - 23 * 32,))  # the north came last
    group[23 * 32 + 4] = GROUPS
    return glyph[group - 1] + 0.7 * torch.randn(n, 8, 10), group


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    scan, group = scans(32 * 60, torch.randn(GROUPS, 8, 10))
    if fixed:
        group = group - 1
    net = GroupNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    losses = []
    with watch(net) as dbg:
        for epoch in range(3):
            for x, g in zip(scan.split(32), group.split(32)):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(net(x), g)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.3
