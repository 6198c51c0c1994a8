"""Actor for a slot floor with eight arms per customer type. After 500 updates the tuning sheet drops the
entropy bonus and raises the step; the arms' odds drift as they always do, but the actor plays one arm only."""
import torch
from torch import nn
from torch.distributions import Categorical

ARCHITECTURE = "RL"
TRUTH = {
    "failures": ["representation_collapse", "optimizer_instability"],
    "causes": ["policy_collapse", "lr_too_high"],
    "layers": [],
    "onset": [500, 620],
}
TYPES, ARMS = 6, 8


class Floor:
    def __init__(self):
        self.best = torch.randperm(ARMS)[:TYPES]

    def drift(self):
        self.best = (self.best + 1) % ARMS

    def pay(self, who, arm):
        return (arm == self.best[who]).float() + 0.3 * torch.rand(len(who))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    actor = nn.Sequential(nn.Linear(TYPES, 32), nn.Tanh(), nn.Linear(32, ARMS))
    opt = torch.optim.Adam(actor.parameters(), lr=1e-2)
    floor, eye = Floor(), torch.eye(TYPES)
    losses, pay, entropies = [], [], []
    with watch(actor) as dbg:
        for step in range(1600):
            bonus = 0.2
            if step >= 500 and not fixed:
                bonus = 0.0
                for g in opt.param_groups:
                    g["lr"] = 0.03
            if step in (800, 1200):
                floor.drift()
            who = torch.randint(TYPES, (64,))
            policy = Categorical(logits=actor(eye[who]))
            arm = policy.sample()
            reward = floor.pay(who, arm)
            entropy = policy.entropy().mean()
            loss = -(policy.log_prob(arm) * (reward - reward.mean())).mean() - bonus * entropy
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            pay.append(reward.mean().item())
            entropies.append(entropy.item())
    return {"loss": losses, "entropy": entropies, "pay": pay, "end": sum(pay[-100:]) / 100}


def harmed(result):
    return result["end"] < 0.6
