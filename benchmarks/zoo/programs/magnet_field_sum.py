"""Field of magnet arrangements, squared error, SGD. With batches of 8 on the laptop it trained; with
128 on the server it blows up in the first steps, same rate, same code."""
import torch
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch", "exploding_gradients", "optimizer_instability"],
    "causes": ["wrong_reduction"],
    "layers": [],
    "onset": [0, 0],
}


def arrangements(n):
    dipoles = torch.randn(n, 5, 3)
    weight = torch.tensor([1.0, 0.8, 0.5, 0.3, 0.2])[None, :, None]
    field = (weight * dipoles).sum(1)
    return dipoles, torch.cat([field, (field**2).sum(1, keepdim=True).tanh()], 1)


class FieldModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.Linear(15, 64)
        self.mix = nn.Linear(64, 64)
        self.field = nn.Linear(64, 4)

    def forward(self, dipoles):
        h = nn.functional.softplus(self.each(dipoles.flatten(1)))
        return self.field(torch.tanh(self.mix(h)))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = FieldModel()
    objective = nn.MSELoss(reduction="mean" if fixed else "sum")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    losses = []
    with watch(model) as dbg:
        for step in range(350):
            dipoles, field = arrangements(128)
            optimizer.zero_grad()
            loss = objective(model(dipoles), field)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            dbg.record_loss(loss.item())
    dipoles, field = arrangements(1000)
    with torch.no_grad():
        error = (model(dipoles) - field).square().mean().item()
    return {"loss": losses, "error": error}


def harmed(result):
    return not result["error"] < 0.2
