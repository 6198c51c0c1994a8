"""Actor and critic share a trunk and steer a warehouse order; the reward is the day's profit in euro. The value
loss has ten digits, the orders do not improve."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

ARCHITECTURE = "RL"
TRUTH = {
    "failures": ["exploding_gradients", "optimizer_instability"],
    "causes": ["unscaled_reward", "unnormalized_target"],
    "layers": [],
    "onset": [0, 0],
}
ORDERS = 5


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
        self.pi, self.v = nn.Linear(48, ORDERS), nn.Linear(48, 1)

    def forward(self, state):
        h = self.trunk(state)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


class Warehouse:
    """Order about as much as tomorrow's demand, which the state tells."""

    euro = 40_000.0

    def profit(self, state, order):
        demand = ((state[:, 0] + state[:, 1] * state[:, 2]).sigmoid() * (ORDERS - 1)).round()
        return self.euro * (1.0 - (order - demand).abs() / 2 + 0.1 * torch.randn(len(state)))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model, world = ActorCritic(), Warehouse()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    unit = world.euro if fixed else 1.0
    losses, profits = [], []
    with watch(model) as dbg:
        for _ in range(400):
            state = torch.randn(64, 4)
            policy, value = model(state)
            order = policy.sample()
            profit = world.profit(state, order) / unit
            advantage = (profit - value).detach()
            loss = -(policy.log_prob(order) * advantage).mean() + 0.5 * F.mse_loss(value, profit)
            loss = loss - 0.01 * policy.entropy().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            profits.append((profit * unit / world.euro).mean().item())
    return {"loss": losses, "profit": profits}


def harmed(result):
    return sum(result["profit"][-30:]) / 30 < 0.65
