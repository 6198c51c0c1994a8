"""A boiler model learned on plant A is adapted to plant B with low-rank adapters on a frozen base.
Plant A went well; on plant B the error has not moved after 700 updates."""
import torch
from torch import nn

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["vanishing_gradients", "training_wiring"],
    "causes": ["blocked_zero_init"],
    "layers": ["body.0", "body.2", "body.4", "body.0.down", "body.0.up", "body.2.down", "body.2.up", "body.4.down", "body.4.up"],
    "onset": [600, 600],
}


class Adapted(nn.Module):
    def __init__(self, base, rank, std):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.normal_(self.down.weight, std=std)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + 2.0 * self.up(self.down(x))


class Boiler(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))

    def forward(self, x):
        return self.body(x)


class Plant:
    def __init__(self, mix):
        self.mix = mix

    def sample(self, n):
        x = torch.randn(n, 10)
        h = x @ self.mix
        return x, torch.stack([torch.sin(h[:, 0]) + 0.5 * h[:, 1], h[:, 1] * torch.tanh(h[:, 2])], 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    mix = torch.randn(10, 3) / 10**0.5
    plants = [Plant(mix), Plant(mix + 0.9 * torch.randn(10, 3) / 10**0.5)]
    model = Boiler()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(1300):
            if step == 600:
                for p in model.parameters():
                    p.requires_grad_(False)
                for i in (0, 2, 4):
                    model.body[i] = Adapted(model.body[i], rank=4, std=0.1 if fixed else 0.0)
                opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=5e-3)
            x, y = plants[step >= 600].sample(64)
            loss = nn.functional.smooth_l1_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(loss.item())
    mean = lambda v: sum(v) / len(v)
    return {"loss": losses, "b_first": mean(losses[600:620]), "b_last": mean(losses[-50:])}


def harmed(result):
    return result["b_last"] > 0.7 * result["b_first"]
