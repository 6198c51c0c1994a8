"""Radicals from pen-drawn dots: log-softmax in the model, NLLLoss outside, step decay, evaluation each epoch."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3)
        self.conv2 = nn.Conv2d(16, 24, 3)
        self.dropout = nn.Dropout2d(0.1)
        self.fc = nn.Linear(24 * 9, 6)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return F.log_softmax(self.fc(self.dropout(x).flatten(1)), dim=1)


def drawings(n, radicals):
    label = torch.randint(0, 6, (n,))
    ink = radicals[label] * (torch.rand(n, 10, 10) < 0.85)
    return (ink + 0.3 * torch.randn(n, 10, 10))[:, None], label


def test(model, loader):
    model.eval()
    total, right = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            total += F.nll_loss(out, y, reduction="sum").item()
            right += (out.argmax(1) == y).sum().item()
    return total / len(loader.dataset), right / len(loader.dataset)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    radicals = (torch.rand(6, 10, 10) < 0.3).float()
    train_loader = DataLoader(TensorDataset(*drawings(1200, radicals)), batch_size=40, shuffle=True)
    test_loader = DataLoader(TensorDataset(*drawings(300, radicals)), batch_size=100)
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.8)
    losses, scores = [], []
    with watch(model) as dbg:
        for epoch in range(6):
            model.train()
            for x, y in train_loader:
                optimizer.zero_grad()
                loss = F.nll_loss(model(x), y)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            scores.append(test(model, test_loader)[1])
            scheduler.step()
    return {"loss": losses, "accuracy": scores[-1], "learned": scores[-1] > 0.9}


def harmed(result):
    return False
