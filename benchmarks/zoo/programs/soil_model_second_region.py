"""A soil model is trained on the north, then tuned on the new samples of the south at the same rate. The south gets good;
the north, which the service still asks for, is lost."""
import torch
from torch import nn

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["optimizer_instability", "representation_collapse", "data_anomaly"],
    "causes": ["catastrophic_forgetting", "input_distribution_shift"],
    "layers": [],
    "onset": [200, 220],
}


class Soil(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(6, 64)
        self.blocks = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 64)])
        self.leave = nn.Linear(64, 1)

    def forward(self, x):
        h = nn.functional.gelu(self.enter(x))
        for block in self.blocks:
            h = h + nn.functional.gelu(block(h))
        return self.leave(h).squeeze(-1)


def region(n, south):
    x = torch.randn(n, 6)
    x[:, 5] = 1.0 if south else -1.0
    north_law = torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
    south_law = torch.cos(2 * x[:, 1]) - x[:, 3] * x[:, 0]
    return x, south_law if south else north_law


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Soil()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    held_out = region(256, south=False)
    losses, north = [], []
    with watch(model) as dbg:
        for step in range(450):
            x, y = region(64, south=step >= 200)
            if fixed and step >= 200:
                old = region(64, south=False)
                x, y = torch.cat([x, old[0]]), torch.cat([y, old[1]])
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            if step % 5 == 4:
                model.eval()
                with torch.no_grad():
                    value = nn.functional.mse_loss(model(held_out[0]), held_out[1]).item()
                model.train()
                dbg.record_loss(value, name="north")
                north.append(value)
    return {"loss": losses, "north": north, "at_switch": north[39]}


def harmed(result):
    return result["north"][-1] > 3 * result["at_switch"] + 0.1
