"""Topics of papers in a citation graph. Two convolutions reached 85 percent, so the user took sixteen.

Every paper gets the same scores.
"""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["representation_collapse", "vanishing_gradients", "optimizer_instability"],
    "causes": ["oversmoothing", "deep_without_residual"],
    "layers": ["convs"] + [f"convs.{i}" for i in range(16)] + [f"convs.{i}.mix" for i in range(16)],
    "onset": [0, 0],
}


class GraphConv(nn.Module):
    def __init__(self, width, anchor):
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.anchor = anchor

    def forward(self, h, first, adjacency):
        spread = adjacency @ h
        if self.anchor:
            spread = 0.7 * spread + 0.3 * first
            return F.relu(0.8 * spread + 0.2 * self.mix(spread))
        return F.relu(self.mix(spread))


class PaperNet(nn.Module):
    def __init__(self, words, topics, width=32, depth=16, anchor=False):
        super().__init__()
        self.read = nn.Linear(words, width)
        self.convs = nn.ModuleList([GraphConv(width, anchor) for _ in range(depth)])
        for conv in self.convs:
            nn.init.orthogonal_(conv.mix.weight, gain=1.4)
        self.topic = nn.Linear(width, topics)

    def forward(self, x, adjacency):
        first = h = F.relu(self.read(x))
        for conv in self.convs:
            h = conv(h, first, adjacency)
        return self.topic(h)


def citations(papers=300, topics=4, words=40):
    topic = torch.randint(0, topics, (papers,))
    same = topic[:, None] == topic
    edge = (torch.rand(papers, papers) < torch.where(same, 0.04, 0.012)).float().triu(1)
    edge = edge + edge.T + torch.eye(papers)
    root = edge.sum(1).rsqrt()
    x = (torch.rand(papers, words) < 0.1).float()
    favourite = torch.rand(topics, words) < 0.25
    x = torch.maximum(x, (torch.rand(papers, words) < 0.2).float() * favourite[topic])
    return (x - x.mean(0)) / x.std(0), root[:, None] * edge * root, topic


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, adjacency, topic = citations()
    known = torch.randperm(300)[:150]
    net = PaperNet(40, 4, anchor=fixed)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3, weight_decay=5e-4)
    losses = []
    with watch(net) as dbg:
        for epoch in range(200):
            optimizer.zero_grad()
            out = net(x, adjacency)
            loss = F.cross_entropy(out[known], topic[known])
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    direction = F.normalize(out.detach(), dim=1)
    alike = (direction @ direction.T).mean().item()
    return {"loss": losses, "alike": alike}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.9
