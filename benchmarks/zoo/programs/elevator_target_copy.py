"""Waiting-time values of an elevator group from logged transitions, with a slow target net. After 600 updates the
code is tidied up; the values, steady until then, grow without end."""
import copy

import torch
from torch import nn

ARCHITECTURE = "RL"
TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients"],
    "causes": ["value_divergence"],
    "layers": [],
    "onset": [600, 700],
}
GAMMA = 0.97


class ValueNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))

    def forward(self, s):
        return self.layers(s)


class Log:
    def __init__(self, n):
        load = torch.exp(torch.rand(n, 1) * 2.6 - 1.0)
        self.s = nn.functional.normalize(torch.randn(n, 5), dim=1) * load
        self.a = torch.randint(4, (n,))
        self.after = self.s * (1.6 + 0.1 * torch.randn(n, 1)) + 0.1 * self.a[:, None]
        self.done = self.after.norm(dim=1) > 5
        keep = ~self.done | (torch.rand(n) < 0.2)
        self.s, self.a, self.after, self.done = (v[keep] for v in (self.s, self.a, self.after, self.done))
        self.r = (~self.done).float() - 0.1 * self.a

    def draw(self, n):
        i = torch.randint(len(self.s), (n,))
        return self.s[i], self.a[i], self.r[i], self.after[i], (~self.done[i]).float()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    log, net = Log(6000), ValueNet()
    target = copy.deepcopy(net)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    losses, level = [], []
    with watch(net) as dbg:
        for step in range(1500):
            if step % 100 == 0:
                if step >= 600 and not fixed:
                    target = net
                else:
                    target.load_state_dict(net.state_dict())
            s, a, r, after, alive = log.draw(64)
            with torch.no_grad():
                goal = r + GAMMA * alive * target(after).amax(1)
            value = net(s).gather(1, a[:, None]).squeeze(1)
            loss = (value - goal).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            level.append(value.detach().abs().mean().item())
            dbg.record_loss(losses[-1])
    return {"loss": losses, "value": level}


def harmed(result):
    return not sum(result["value"][-20:]) / 20 < 60
