"""A big keyword network teaches a small one: KLDivLoss of softened distributions, temperature 4, times 16."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
T = 4.0


def network(width, classes=8):
    return nn.Sequential(nn.Linear(40, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))


def words(n, centres):
    label = torch.randint(0, 8, (n,))
    which = torch.randint(0, 3, (n,))
    return centres[label, which] + 1.2 * torch.randn(n, 40), label


def teach(centres):
    big = network(128)
    optimizer = torch.optim.Adam(big.parameters(), lr=2e-3)
    for _ in range(250):
        x, y = words(128, centres)
        loss = F.cross_entropy(big(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return big.eval().requires_grad_(False)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    centres = torch.randn(8, 3, 40) * 0.85
    teacher, student = teach(centres), network(24)
    soft = nn.KLDivLoss(reduction="batchmean")
    optimizer = torch.optim.AdamW(student.parameters(), lr=4e-3)
    losses = []
    with watch(student) as dbg:
        for step in range(400):
            x, y = words(64, centres)
            with torch.no_grad():
                target = F.softmax(teacher(x) / T, dim=-1)
            logits = student(x)
            loss = 0.9 * T * T * soft(F.log_softmax(logits / T, dim=-1), target) + 0.1 * F.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    x, y = words(1000, centres)
    student.eval()
    with torch.no_grad():
        accuracy = (student(x).argmax(1) == y).float().mean().item()
    return {"loss": losses, "accuracy": accuracy, "learned": accuracy > 0.8}


def harmed(result):
    return False
