"""Five grades of cheese rind from a colour vector. Grades come as fractions of the best one and are cast
to class numbers. The loss is wonderful after a minute."""
import torch
from torch import nn

TRUTH = {"failures": ["data_anomaly", "objective_mismatch"], "causes": ["degenerate_targets", "label_index_mismatch"], "layers": [], "onset": [0, 0]}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    colour = torch.randn(900, 10)
    score = torch.sigmoid(1.5 * colour[:, 0] - colour[:, 1])
    fraction = (score * 4.999).floor() / 5
    model = nn.Sequential(nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 5))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses, right = [], []
    with watch(model) as dbg:
        for _ in range(300):
            rows = torch.randint(0, 900, (48,))
            grade = (fraction[rows] * 5).round().long() if fixed else fraction[rows].long()
            output = model(colour[rows])
            loss = nn.functional.cross_entropy(output, grade)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            right.append((output.argmax(1) == (fraction[rows] * 5).round().long()).float().mean().item())
    return {"loss": losses, "right": right}


def harmed(result):
    return sum(result["right"][-30:]) / 30 < 0.5
