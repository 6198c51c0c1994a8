"""An actor-critic on a corridor with rare large wins: the loss jumps whenever a win comes in, takes both
signs, and the entropy bonus is annealed to nothing. The return rises all the same."""
import torch
from torch import nn
from torch.distributions import Categorical

ARCHITECTURE = "RL"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
CELLS = 7


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(CELLS, 48), nn.Tanh())
        self.pi, self.v = nn.Linear(48, 2), nn.Linear(48, 1)

    def forward(self, s):
        h = self.body(s)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def corridor(model, walkers=16, length=12):
    eye = torch.eye(CELLS)
    place = torch.full((walkers,), 2)
    logp, value, ent, rew = [], [], [], []
    for _ in range(length):
        pi, v = model(eye[place])
        a = pi.sample()
        place = (place + 2 * a - 1).clamp(0, CELLS - 1)
        small = (place == 0).float() * 0.1
        jackpot = (place == CELLS - 1).float() * (torch.rand(walkers) < 0.25).float() * 4.0
        logp.append(pi.log_prob(a)); value.append(v); ent.append(pi.entropy()); rew.append(small + jackpot)
    ret, total = torch.zeros(walkers), []
    for r in reversed(rew):
        ret = r + 0.95 * ret
        total.insert(0, ret)
    return torch.stack(logp), torch.stack(value), torch.stack(ent), torch.stack(total), torch.stack(rew).sum(0).mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = ActorCritic()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses, returns = [], []
    with watch(model) as dbg:
        for step in range(700):
            logp, value, ent, total, score = corridor(model)
            adv = (total - value).detach()
            adv = (adv - adv.mean()) / (adv.std() + 1e-6)
            bonus = 0.05 * max(0.0, 1 - step / 500)
            loss = -(logp * adv).mean() + 0.1 * (value - total).square().mean() - bonus * ent.mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            opt.step()
            losses.append(loss.item())
            returns.append(score)
            dbg.record_loss(losses[-1])
    first, last = sum(returns[:20]) / 20, sum(returns[-50:]) / 50
    return {"loss": losses, "first_return": first, "last_return": last, "learned": last > 2 * first + 1}


def harmed(result):
    return False
