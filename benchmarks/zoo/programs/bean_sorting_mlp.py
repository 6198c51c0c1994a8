"""Sorts coffee beans into seven grades by 24 measurements with a batch-norm-free MLP and a home-made start.

The first loss printed is in the thousands and the accuracy ends far below that of a colleague.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["exploding_gradients", "optimizer_instability", "dead_neurons"],
    "causes": ["init_too_large"],
    "layers": ["0", "2", "4"],
    "onset": [0, 0],
}


def start(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight)
        nn.init.zeros_(module.bias)


def beans(n, rule):
    x = torch.randn(n, 24)
    h = torch.relu(x @ rule[0])
    return x, (h @ rule[1]).argmax(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rule = torch.randn(24, 32) / 24**0.5, torch.randn(32, 7)
    x, grade = beans(6000, rule)
    x_val, grade_val = beans(1000, rule)
    grader = nn.Sequential(
        nn.Linear(24, 96),
        nn.ReLU(),
        nn.Linear(96, 96),
        nn.ReLU(),
        nn.Linear(96, 96),
        nn.ReLU(),
        nn.Linear(96, 7),
    )
    if not fixed:
        grader.apply(start)
    sgd = torch.optim.Adam(grader.parameters(), lr=1e-3)
    losses = []
    with watch(grader) as dbg:
        for epoch in range(5):
            for rows in torch.randperm(len(x)).split(100):
                loss = nn.functional.cross_entropy(grader(x[rows]), grade[rows])
                sgd.zero_grad()
                loss.backward()
                sgd.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    with torch.no_grad():
        accuracy = (grader(x_val).argmax(1) == grade_val).float().mean().item()
    return {"loss": losses, "accuracy": accuracy}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 1.0
