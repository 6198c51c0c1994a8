"""Which of six lamps to switch on, learned from a score between five and six, with each batch of trials used many times over.
Within a few rounds it takes the same lamp or two whatever the room looks like."""
import torch
from torch import nn

ARCHITECTURE = "RL"
TRUTH = {
    "failures": ["representation_collapse", "optimizer_instability"],
    "causes": ["policy_collapse"],
    "layers": [],
    "onset": [0, 80],
}
LAMPS = 6


def room(n):
    x = torch.randn(n, 5)
    best = ((x[:, 0] * 1.2).sigmoid() * LAMPS).long().clamp(max=LAMPS - 1)
    return x, best


def score(best, lamp):
    return 6.0 - (best - lamp).abs() / LAMPS + 0.05 * torch.randn(len(lamp))


def update(model, opt, x, lamp, reward, old, fixed, dbg, reuse=8):
    weight = (reward - reward.mean()) / (reward.std() + 1e-6) if fixed else reward
    for _ in range(reuse):
        logp = model(x).log_softmax(-1)
        ratio = (logp.gather(1, lamp[:, None]).squeeze(1) - old).exp()
        if fixed:
            gain = torch.minimum(ratio * weight, ratio.clamp(0.8, 1.2) * weight)
        else:
            gain = ratio * weight
        spread = -(logp.exp() * logp).sum(-1).mean()
        loss = -gain.mean() - (0.03 * spread if fixed else 0.0)
        opt.zero_grad()
        loss.backward()
        opt.step()
        dbg.record_loss(loss.item())
    return spread.item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, LAMPS))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    rewards, spreads = [], []
    with watch(model) as dbg:
        for _ in range(60):
            x, best = room(128)
            with torch.no_grad():
                policy = torch.distributions.Categorical(logits=model(x))
                lamp = policy.sample()
                old = policy.log_prob(lamp)
            reward = score(best, lamp)
            spreads.append(update(model, opt, x, lamp, reward, old, fixed, dbg))
            rewards.append(reward.mean().item())
    return {"reward": rewards, "spread": spreads}


def harmed(result):
    return sum(result["reward"][-10:]) / 10 < 5.85
