"""Leaf diseases: a backbone from a ten-class task gets a new head for four diseases. The
optimizer is set up by a shared helper. The loss goes down slowly and ends far above the old model's."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["stale_optimizer_parameters", "parameters_not_in_optimizer"],
    "layers": ["head"],
    "onset": [0, 0],
}


class LeafNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 16, 3, padding=1), nn.ReLU()
        )
        self.head = nn.Linear(16, classes)

    def forward(self, leaf):
        return self.head(self.body(leaf).mean((2, 3)))


def leaves(n, tint):
    label = torch.randint(0, 4, (n,))
    leaf = torch.randn(n, 3, 10, 10)
    spots = (torch.rand(n, 1, 10, 10) < 0.3).float()
    return leaf + spots * tint[label][:, :, None, None], label


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    tint = 1.2 * torch.tensor([[1.0, -1, 0], [-1, 1, 0], [0.7, 0, -1], [-0.7, 0, 1]]) + 0.1 * torch.randn(4, 3)
    loader = DataLoader(TensorDataset(*leaves(960, tint)), batch_size=32, shuffle=True)
    model = LeafNet(10)
    if fixed:
        model.head = nn.Linear(16, 4)
    groups = [{"params": model.body.parameters(), "lr": 2e-4}, {"params": model.head.parameters(), "lr": 2e-2}]
    optimizer = torch.optim.Adam(groups)
    if not fixed:
        model.head = nn.Linear(16, 4)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.02)
    losses = []
    with watch(model) as dbg:
        for epoch in range(8):
            for leaf, label in loader:
                model.zero_grad()
                loss = criterion(model(leaf), label)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.5
