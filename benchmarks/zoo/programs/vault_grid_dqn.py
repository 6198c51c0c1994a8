"""A robot looks for the vault in a 5 x 5 grid with DQN: replay, target network, epsilon-greedy."""

import copy
import random
from collections import deque

import torch
from torch import nn

ARCHITECTURE = "RL"
FAULTS = {
    "prize_in_cents": {
        "failures": ["exploding_gradients", "optimizer_instability"],
        "causes": ["unscaled_reward", "unnormalized_target", "value_divergence"],
        "layers": [],
        "onset": [0, 120],
    },
    "runaway_bootstrap": {
        "failures": ["optimizer_instability", "exploding_gradients"],
        "causes": ["value_divergence"],
        "layers": [],
        "onset": [0, 300],
    },
    "other_net_in_optimizer": {
        "failures": ["training_wiring"],
        "causes": ["stale_optimizer_parameters", "parameters_not_in_optimizer"],
        "layers": ["", "0", "2", "4"],
        "onset": [0, 0],
    },
    "rewards_beside_states": {
        "failures": ["objective_mismatch", "optimizer_instability"],
        "causes": ["loss_shape_broadcast"],
        "layers": [],
        "onset": [0, 0],
    },
}
SIDE = 5


def qnet():
    return nn.Sequential(nn.Linear(2 * SIDE, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))


def see(cells):
    cells = torch.as_tensor(cells)
    eye = torch.eye(SIDE)
    return torch.cat([eye[cells[..., 0]], eye[cells[..., 1]]], -1)


def move(cell, action):
    row, col = cell
    row += (action == 0) - (action == 1)
    col += (action == 2) - (action == 3)
    cell = (min(max(row, 0), SIDE - 1), min(max(col, 0), SIDE - 1))
    return cell, float(cell == (SIDE - 1, SIDE - 1)) - 0.04


def greedy_share(q):
    """Share of starting cells from which the greedy walk reaches the vault."""
    found = 0
    for start in range(SIDE * SIDE - 1):
        cell = (start // SIDE, start % SIDE)
        for _ in range(2 * SIDE):
            with torch.no_grad():
                cell, _ = move(cell, int(q(see(cell)).argmax()))
            if cell == (SIDE - 1, SIDE - 1):
                found += 1
                break
    return found / (SIDE * SIDE - 1)


def train(watch, fixed=False, seed=0, fault="prize_in_cents", severity=1.0):
    random.seed(seed)
    torch.manual_seed(seed)
    on = "" if fixed else fault
    q = qnet()
    optimizer = torch.optim.Adam(q.parameters(), lr=3e-3)
    if on == "other_net_in_optimizer":
        q = copy.deepcopy(q)
    target = copy.deepcopy(q)
    pay = 20_000.0 * severity if on == "prize_in_cents" else 1.0
    gamma = 1.15 if on == "runaway_bootstrap" else 0.9
    memory, cell, losses, worth = deque(maxlen=2000), (0, 0), [], []
    with watch(q) as dbg:
        for step in range(900):
            if random.random() < max(0.1, 1 - step / 500):
                action = random.randrange(4)
            else:
                with torch.no_grad():
                    action = int(q(see(cell)).argmax())
            after, reward = move(cell, action)
            done = after == (SIDE - 1, SIDE - 1)
            memory.append((cell, action, pay * reward, after, done))
            cell = (random.randrange(SIDE - 1), random.randrange(SIDE)) if done or step % 20 == 0 else after
            if step < 100 or step % 2:
                continue
            cells, actions, rewards, nexts, dones = zip(*random.sample(memory, 48))
            with torch.no_grad():
                best = (q if on == "runaway_bootstrap" else target)(see(nexts)).max(1).values
            goal = torch.tensor(rewards) + gamma * best * (1 - torch.tensor(dones).float())
            if on == "runaway_bootstrap":
                goal = torch.tensor(rewards) + gamma * best
            guess = q(see(cells)).gather(1, torch.tensor(actions)[:, None])
            guess = guess if on == "rewards_beside_states" else guess.squeeze(1)
            loss = nn.functional.mse_loss(guess, goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            worth.append(guess.abs().mean().item())
            if step % 40 == 0:
                target.load_state_dict(q.state_dict())
    return {"loss": losses, "worth": worth, "found": greedy_share(q)}


def harmed(result):
    return not (result["found"] > 0.8 and result["worth"][-1] < 20)
