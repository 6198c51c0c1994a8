"""A card game policy with an entropy term over the legal moves. It runs until the first hand in which some
card may not be played; from there on all is nan."""
import torch
from torch import nn

ARCHITECTURE = "RL"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["log_of_nonpositive"],
    "layers": [],
    "onset": [95, 95],
}
CARDS = 6


class Hand(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(CARDS, 32), nn.ReLU(), nn.Linear(32, CARDS))

    def forward(self, strength, legal):
        return self.body(strength).masked_fill(~legal, -torch.inf).softmax(-1)


def entropy(p, fixed):
    if fixed:
        return torch.special.entr(p.clamp(min=1e-12)).sum(-1)
    return -(p * p.log()).sum(-1)


def hands(n, suit_rule):
    legal = torch.ones(n, CARDS, dtype=torch.bool)
    if suit_rule:
        legal[:, :2] = torch.rand(n, 2) < 0.7
    return torch.randn(n, CARDS), legal


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Hand()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses, returns, base = [], [], 0.0
    with watch(model) as dbg:
        for step in range(300):
            strength, legal = hands(64, suit_rule=step >= 95)
            p = model(strength, legal)
            card = torch.multinomial(p.detach().nan_to_num(1.0) + 1e-9, 1)
            reward = strength.gather(1, card).squeeze(1)
            chosen = p.gather(1, card).squeeze(1)
            loss = -((reward - base) * (chosen + 1e-9).log()).mean() - 0.02 * entropy(p, fixed).mean()
            base = 0.9 * base + 0.1 * reward.mean().item()
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            returns.append(reward.mean().item())
    return {"loss": losses, "return": returns}


def harmed(result):
    return not sum(result["return"][-30:]) / 30 > 0.7
