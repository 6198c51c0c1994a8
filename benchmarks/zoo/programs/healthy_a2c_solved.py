"""Actor-critic on a small maze: as it is solved entropy goes to zero, advantages vanish, and the loss hovers about 0
with both signs."""
import torch
import torch.nn as nn
import torch.nn.functional as F

ARCHITECTURE = "RL"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
N, GAMMA = 5, 0.95


class Maze:
    def __init__(self, envs):
        self.pos = torch.zeros(envs, 2, dtype=torch.long)
        self.age = torch.zeros(envs)

    def obs(self):
        return F.one_hot(self.pos[:, 0] * N + self.pos[:, 1], N * N).float()

    def step(self, a):
        move = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])[a]
        self.pos = (self.pos + move).clamp(0, N - 1)
        self.age += 1
        goal = (self.pos == N - 1).all(1)
        done = goal | (self.age > 40)
        reward = goal.float() - 0.02
        self.pos[done] = 0
        self.age[done] = 0
        return reward, done.float(), goal


class AC(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(N * N, 64)
        self.actor, self.critic = nn.Linear(64, 4), nn.Linear(64, 1)

    def forward(self, o):
        h = torch.tanh(self.fc(o))
        return self.actor(h), self.critic(h).squeeze(-1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    env, net = Maze(16), AC()
    opt = torch.optim.RMSprop(net.parameters(), lr=2e-3)
    log = {"loss": [], "entropy": [], "goals": []}
    with watch(net) as dbg:
        for it in range(500):
            logps, values, rewards, dones, ents, goals = [], [], [], [], [], 0
            for _ in range(8):
                logits, v = net(env.obs())
                dist = torch.distributions.Categorical(logits=logits)
                a = dist.sample()
                r, d, g = env.step(a)
                logps.append(dist.log_prob(a)), values.append(v), rewards.append(r), dones.append(d)
                ents.append(dist.entropy())
                goals += g.sum().item()
            with torch.no_grad():
                ret = net(env.obs())[1]
            loss = 0.0
            for t in reversed(range(8)):
                ret = rewards[t] + GAMMA * ret * (1 - dones[t])
                adv = ret - values[t]
                loss = loss + (-logps[t] * adv.detach() + 0.5 * adv.pow(2) - 0.005 * ents[t]).mean() / 8
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            dbg.record_loss(loss.item())
            log["loss"].append(loss.item())
            log["entropy"].append(torch.stack(ents).mean().item())
            log["goals"].append(goals)
    log["learned"] = sum(log["goals"][-50:]) / 50 > 12
    return log


def harmed(result):
    return False
