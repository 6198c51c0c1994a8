"""Wine grades from lab values. Rows with a missing measurement are dropped from the table before training.

The net trains without any error message, and is no better than always guessing the most frequent grade.
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["labels_unrelated_to_inputs"],
    "layers": [],
    "onset": [0, 0],
}
GRADES = 4


def table(n):
    values = torch.randn(n, 11)
    score = values[:, 0] - values[:, 3] + 0.8 * values[:, 5] * values[:, 7]
    cuts = torch.tensor([-1.2, 0.0, 1.2])
    grade = torch.bucketize(score + 0.2 * torch.randn(n), cuts)
    values[torch.rand(n) < 0.1, 4] = float("nan")
    values[0, 4] = float("nan")
    return values, grade


def clean(values, grade, fixed):
    present = ~values.isnan().any(dim=1)
    values = values[present]
    grade = grade[present] if fixed else grade[: len(values)]
    return values, grade


def make_model():
    return nn.Sequential(
        nn.Linear(11, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, GRADES)
    )


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = clean(*table(9000), fixed)
    x_test, y_test = clean(*table(1200), True)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
    criterion = nn.CrossEntropyLoss()
    losses = []
    with watch(model) as dbg:
        for epoch in range(4):
            model.train()
            for xb, yb in loader:
                optimizer.zero_grad(set_to_none=True)
                loss = criterion(model(xb), yb)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            scheduler.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
    return {"loss": losses, "accuracy": accuracy}


def harmed(result):
    return result["accuracy"] < 0.6
