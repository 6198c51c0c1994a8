"""Voices of the same person should get similar vectors: one minus the mean cosine of the pairs plus
a spreading term. After training, two clips of one person are as dissimilar as they can be."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["wrong_loss_sign"],
    "layers": [],
    "onset": [0, 0],
}


class VoiceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, clip):
        return F.normalize(self.layers(clip), dim=1)


def pair_loss(a, b, same):
    """cosine_embedding_loss with our own weights"""
    cosine = (a * b).sum(1)
    return (same * (1 - cosine) + (1 - same) * F.relu(cosine)).mean()


def clips(n, people):
    who = torch.randint(0, len(people), (n,))
    other = torch.where(torch.rand(n) < 0.5, who, torch.randint(0, len(people), (n,)))
    noise = lambda: 0.8 * torch.randn(n, people.shape[1])
    return people[who] + noise(), people[other] + noise(), (who == other).float()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    people = torch.randn(20, 40)
    net = VoiceNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, maximize=not fixed)
    losses = []
    with watch(net) as dbg:
        for step in range(300):
            one, two, same = clips(64, people)
            loss = pair_loss(net(one), net(two), same)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.3
