"""Node labels in a citation-like graph with a graph network of twenty-four layers, sparse propagation.

Two layers gave 90 %; twenty-four give chance, all nodes get the same prediction.
"""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "GNN"
TRUTH = {
    "failures": ["representation_collapse", "vanishing_gradients", "optimizer_instability"],
    "causes": ["oversmoothing", "deep_without_residual"],
    "layers": ["convs"] + [f"convs.{i}" for i in range(24)],
    "onset": [0, 0],
}


def citation_graph(n=180, k=3, f=20):
    y = torch.arange(n) % k
    same = y[:, None] == y[None, :]
    prob = torch.where(same, 0.14, 0.04)
    upper = (torch.rand(n, n) < prob).float().triu(1)
    adj = upper + upper.T + torch.eye(n)
    d = adj.sum(1).rsqrt()
    x = 0.6 * torch.randn(k, f)[y] + torch.randn(n, f)
    return x, (d[:, None] * adj * d[None, :]).to_sparse(), y


class GraphLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d, bias=False)
        nn.init.orthogonal_(self.lin.weight, gain=1.4)

    def forward(self, x, adj):
        return torch.sparse.mm(adj, self.lin(x))


class GraphNet(nn.Module):
    def __init__(self, f, d, k, depth, keep):
        super().__init__()
        self.enter = nn.Linear(f, d)
        self.convs = nn.ModuleList(GraphLayer(d) for _ in range(depth))
        self.leave = nn.Linear(d, k)
        self.keep = keep

    def forward(self, x, adj):
        h = first = F.relu(self.enter(x))
        for conv in self.convs:
            h = F.relu(conv((1 - self.keep) * h + self.keep * first, adj))
        return self.leave(h)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, adj, y = citation_graph()
    seen = torch.rand(len(y)) < 0.6
    net = GraphNet(x.shape[1], 32, 3, 24, keep=0.1 if fixed else 0.0)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3, weight_decay=5e-4)
    losses = []
    with watch(net) as dbg:
        for epoch in range(150):
            opt.zero_grad()
            loss = F.cross_entropy(net(x, adj)[seen], y[seen])
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    with torch.no_grad():
        acc = (net(x, adj).argmax(1) == y)[~seen].float().mean().item()
    return {"loss": losses, "accuracy": acc}


def harmed(result):
    return result["accuracy"] < 0.7
