"""A model of spice blends learns the winter range, then only the summer range. The winter score is checked
now and then; nobody looks at it until the end."""
import torch
from torch import nn

TRUTH = {"failures": ["optimizer_instability", "representation_collapse", "data_anomaly"], "causes": ["catastrophic_forgetting"], "layers": [], "onset": [180, 220]}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    weights = torch.randn(2, 12) / 2
    base = torch.randn(2, 12)

    def season(n, which):
        x = base[which] * 1.5 + torch.randn(n, 12)
        return x, torch.sin(x @ weights[which])[:, None] + which

    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    held_x, held_y = season(256, 0)
    losses, winter = [], []
    with watch(model) as dbg:
        for step in range(400):
            if step < 200:
                x, y = season(64, 0)
            elif fixed:
                x, y = (torch.cat(p) for p in zip(season(32, 0), season(32, 1), strict=True))
            else:
                x, y = season(64, 1)
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            if step % 20 == 19:
                with torch.no_grad():
                    error = nn.functional.mse_loss(model(held_x), held_y).item()
                dbg.record_loss(error, "winter")
                winter.append(error)
    return {"loss": losses, "winter": winter}


def harmed(result):
    return result["winter"][-1] > 4 * min(result["winter"])
