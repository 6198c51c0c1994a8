"""Three leaf diseases told apart by a small normalised convnet; settings copied from a big model's last stage.

Ten epochs later the training loss has lost a few thousandths.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["optimizer_instability"],
    "causes": ["lr_too_low"],
    "layers": [],
    "onset": [0, 0],
}


def conv_bn(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.SiLU())


class LeafNet(nn.Module):
    def __init__(self, diseases=3):
        super().__init__()
        self.trunk = nn.Sequential(conv_bn(3, 12), nn.MaxPool2d(2), conv_bn(12, 24), nn.AdaptiveAvgPool2d(2))
        self.diagnose = nn.Linear(24 * 4, diseases)

    def forward(self, photo):
        return self.diagnose(self.trunk(photo).flatten(1))


def leaves(n):
    label = torch.randint(0, 3, (n,))
    photo = 0.5 * torch.randn(n, 3, 12, 12)
    photo[:, 1] += 0.5
    for i, kind in enumerate(label.tolist()):
        for _ in range(4):
            r, c = torch.randint(0, 10, (2,)).tolist()
            if kind == 0:
                photo[i, 0, r : r + 3, c : c + 3] += 1.5
            elif kind == 1:
                photo[i, :, r, c : c + 3] += 1.5
            else:
                photo[i, 1:, r : r + 2, c : c + 2] -= 1.5
    return photo, label


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*leaves(960)), batch_size=32, shuffle=True, drop_last=True)
    model = LeafNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3 if fixed else 2e-7, weight_decay=0.01)
    objective = nn.CrossEntropyLoss()
    running = []
    with watch(model) as dbg:
        for epoch in range(10):
            for photo, label in loader:
                optimizer.zero_grad(set_to_none=True)
                loss = objective(model(photo), label)
                loss.backward()
                optimizer.step()
                running.append(loss.item())
                dbg.record_loss(running[-1])
    return {"loss": running}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.6
