"""Went from 2 to 14 graph convolutions to 'see further'. Accuracy fell to the share of the largest class;
all nodes come out with the same features."""
import torch
import torch.nn as nn
import torch.nn.functional as F

ARCHITECTURE = "GNN"
TRUTH = {
    "failures": ["representation_collapse", "vanishing_gradients"],
    "causes": ["oversmoothing", "deep_without_residual"],
    "layers": ["encode", "decode"] + ["convs"] + [f"convs.{i}" for i in range(14)] + [f"convs.{i}.lin" for i in range(14)],
    "onset": [0, 20],
}


class Conv(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
        nn.init.kaiming_normal_(self.lin.weight, nonlinearity="relu")
        nn.init.zeros_(self.lin.bias)

    def forward(self, x, A):
        return self.lin(torch.sparse.mm(A, x))


class DeepGCN(nn.Module):
    def __init__(self, f, d, classes, depth, residual):
        super().__init__()
        self.encode = nn.Linear(f, d)
        self.convs = nn.ModuleList([Conv(d) for _ in range(depth)])
        self.decode = nn.Linear(d, classes)
        self.residual = residual

    def forward(self, x, A):
        x = h0 = F.relu(self.encode(x))
        for conv in self.convs:
            y = F.relu(conv(x, A))
            x = 0.3 * y + 0.7 * h0 if self.residual else y
        return self.decode(x)


def graph(n, classes, f):
    y = torch.randint(0, classes, (n,))
    p = torch.where(y[:, None] == y[None], 0.035, 0.012)
    A = (torch.rand(n, n) < p).float().triu(1)
    A = A + A.T + torch.eye(n)
    A = A / A.sum(1, keepdim=True)
    x = torch.randn(classes, f)[y] * 0.35 + torch.randn(n, f)
    return x, A.to_sparse(), y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, A, y = graph(500, 6, 32)
    train_mask = torch.rand(500) < 0.5
    gcn = DeepGCN(32, 32, 6, 14, residual=fixed)
    opt = torch.optim.Adam(gcn.parameters(), lr=3e-3, weight_decay=1e-4)
    hist = []
    with watch(gcn) as dbg:
        for epoch in range(150):
            gcn.train()
            opt.zero_grad()
            loss = F.cross_entropy(gcn(x, A)[train_mask], y[train_mask])
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            hist.append(loss.item())
    gcn.eval()
    with torch.no_grad():
        acc = (gcn(x, A).argmax(1) == y)[~train_mask].float().mean().item()
    return {"loss": hist, "test": acc}


def harmed(result):
    return result["test"] < 0.5
