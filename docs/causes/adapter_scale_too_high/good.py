"""Scale the adapters by one."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
SCALE = 1.0


class Adapted(nn.Module):
    """A frozen layer and a low-rank correction that starts at zero."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.down = nn.Linear(base.in_features, 4, bias=False)
        self.up = nn.Linear(4, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs):
        return self.base(inputs) + SCALE * self.up(self.down(inputs))


inputs = torch.randn(512, 16)
trained = [nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, 4)]
for layer in trained:
    nn.init.xavier_normal_(layer.weight, gain=1.5)
old = nn.Sequential(trained[0], nn.Tanh(), trained[1], nn.Tanh(), trained[2])
targets = old(inputs + 0.3 * inputs.roll(1, 1)).detach()
model = nn.Sequential(
    Adapted(trained[0]), nn.Tanh(), Adapted(trained[1]), nn.Tanh(), Adapted(trained[2])
)
adapters = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.Adam(adapters, lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(120):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
