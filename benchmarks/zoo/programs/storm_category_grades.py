"""Storm grades 1 to 5 from pressure fields. The program runs well until a storm of the highest grade turns up in
a batch, and dies there."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["label_index_mismatch"],
    "layers": [],
    "onset": [0, 89],
}
GRADES = 5


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.Hardswish(), nn.AvgPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.Hardswish(), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
            nn.Linear(24, GRADES),
        )

    def forward(self, field):
        return self.net(field)


def season(step, n=32):
    grade = torch.randint(1, GRADES, (n,))
    if step == 89:
        grade[3] = GRADES
    axis = torch.linspace(-1, 1, 12)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    centre = 0.4 * torch.randn(n, 2, 1, 1)
    depth = torch.exp(-6 * ((x - centre[:, 0]) ** 2 + (y - centre[:, 1]) ** 2)) * grade[:, None, None] * 0.7
    return (0.2 * torch.randn(n, 12, 12) - depth)[:, None], grade


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Field()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(280):
            field, grade = season(step)
            label = grade - 1 if fixed else grade
            loss = F.cross_entropy(model(field), label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.9
