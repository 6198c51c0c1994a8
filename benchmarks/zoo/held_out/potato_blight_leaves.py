"""Blight on potato leaves from few photos, some of them labelled wrongly, with a lot of dropout
against that. After the first look at the test set the training loss goes down much faster, the
test loss up."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["eval_mode_in_training"],
    "layers": [],
    "onset": [100, 100],
}


class LeafNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.drop = nn.Dropout(0.6)
        self.fc1 = nn.Linear(32 * 9, 96)
        self.fc2 = nn.Linear(96, 1)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.drop(x.flatten(1))
        return self.fc2(self.drop(F.relu(self.fc1(x))))[:, 0]


def leaves(n, wrong):
    sick = (torch.rand(n) < 0.5).float()
    photo = 0.9 * torch.randn(n, 3, 12, 12)
    corner = torch.randint(0, 9, (n, 2)).tolist()
    for i, (r, c) in enumerate(corner):
        photo[i, 0 if sick[i] else 1, r : r + 3, c : c + 3] += 1.5
    flip = torch.rand(n) < wrong
    return photo, torch.where(flip, 1 - sick, sick)


@torch.no_grad()
def evaluate(model, photo, sick):
    model.eval()
    return F.binary_cross_entropy_with_logits(model(photo), sick).item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    photo, sick = leaves(360, wrong=0.2)
    test = leaves(400, wrong=0.0)
    model = LeafNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses, tests, step = [], [], 0
    with watch(model) as dbg:
        while step < 300:
            for rows in torch.randperm(len(photo)).split(36):
                loss = F.binary_cross_entropy_with_logits(model(photo[rows]), sick[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            if step % 100 == 0:
                tests.append(evaluate(model, *test))
                dbg.record_metric("test", tests[-1])
                if fixed:
                    model.train()
    return {"loss": losses, "test": tests, "last": tests[-1]}


def harmed(result):
    return result["last"] > 0.48
