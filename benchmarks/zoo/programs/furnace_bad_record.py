"""Furnace temperature from sixteen thermocouples, streamed record by record. At one record deep into the stream the
loss shoots up by orders of magnitude and the net does not regain its precision."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability", "exploding_gradients", "dead_neurons"],
    "causes": ["outlier_batch"],
    "layers": [],
    "onset": [850, 850],
}


def stream(length, mix, screened):
    for record in range(length):
        x = torch.randn(50, 16)
        y = torch.relu(x @ mix[0]) + 0.5 * (x @ mix[1])
        if record == 850:
            x = x * (1.0 if screened else 250.0)
        yield x, y


class Furnace(nn.Module):
    def __init__(self):
        super().__init__()
        self.sense = nn.Linear(16, 40)
        self.join = nn.Linear(40, 40)
        self.read = nn.Linear(40, 1)

    def forward(self, x):
        h = torch.relu(self.sense(x))
        h = torch.relu(self.join(h))
        return self.read(h).squeeze(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    mix = torch.randn(2, 16) / 4
    net = Furnace()
    opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.8)
    losses = []
    with watch(net) as dbg:
        for x, y in stream(1400, mix, fixed):
            loss = nn.functional.smooth_l1_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(loss.item())
    return {"loss": losses, "before": sum(losses[800:850]) / 50, "end": sum(losses[-50:]) / 50}


def harmed(result):
    return not result["end"] < 5 * result["before"]
