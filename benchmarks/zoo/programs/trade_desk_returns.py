"""An agent trades three goods; profits are paid in cents, so returns reach the ten-thousands. Policy and value
share a body. The policy never changes for the better."""
import torch
from torch import nn

TRUTH = {"failures": ["exploding_gradients", "optimizer_instability"], "causes": ["unscaled_reward"], "layers": [], "onset": [0, 10]}


class Desk(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.choice, self.worth = nn.Linear(64, 3), nn.Linear(64, 1)

    def forward(self, state):
        h = self.body(state)
        return self.choice(h), self.worth(h).squeeze(-1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    taste = torch.randn(5, 3)
    model = Desk()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    unit = 1.0 if fixed else 20000.0
    wins = []
    with watch(model) as dbg:
        for _ in range(300):
            state = torch.randn(64, 5)
            scores, worth = model(state)
            policy = torch.distributions.Categorical(logits=scores)
            action = policy.sample()
            won = (action == (state @ taste).argmax(1)).float()
            gain = unit * (won - 0.3)
            loss = -(policy.log_prob(action) * (gain - worth.detach())).mean() + 0.5 * (gain - worth).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            dbg.record_loss(loss.item())
            wins.append(won.mean().item())
    return {"wins": wins}


def harmed(result):
    return sum(result["wins"][-30:]) / 30 < 0.7
