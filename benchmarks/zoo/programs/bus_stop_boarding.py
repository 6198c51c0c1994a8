"""Which door each passenger uses, stop by stop: an LSTM gives one distribution per stop. Likelihood
barely improves; the probabilities of the doors at a stop do not add up to one."""
import torch
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["softmax_wrong_dim"],
    "layers": ["link"],
    "onset": [0, 0],
}
DOORS = 4


class DoorModel(nn.Module):
    def __init__(self, axis, width=40):
        super().__init__()
        self.trip = nn.LSTM(6, width, batch_first=True)
        self.door = nn.Linear(width, DOORS)
        self.link = nn.LogSoftmax(axis)

    def forward(self, stops):
        return self.link(self.door(self.trip(stops)[0]))


def trips(n, rule, stops=12):
    x = torch.randn(n, stops, 6)
    seen = x.cumsum(1) / torch.arange(1, stops + 1)[None, :, None] ** 0.5
    return x, (seen @ rule).argmax(-1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, door = trips(1500, torch.randn(6, DOORS))
    model = DoorModel(axis=-1 if fixed else 1)
    criterion = nn.NLLLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    history = {"loss": [], "right": []}
    with watch(model) as dbg:
        for epoch in range(9):
            for rows in torch.randperm(1500).split(50):
                out = model(x[rows])
                loss = criterion(out.flatten(0, 1), door[rows].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                history["loss"].append(loss.item())
                history["right"].append((out.argmax(-1) == door[rows]).float().mean().item())
    return history


def harmed(result):
    return sum(result["right"][-20:]) / 20 < 0.85
