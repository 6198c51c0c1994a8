"""SimSiam on two noisy views: stop-gradient on one branch, a loss that ends near minus one, no negatives."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Contrastive"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class SimSiam(nn.Module):
    def __init__(self, d_in=32, d=48):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(d_in, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, d, bias=False),
            nn.BatchNorm1d(d, affine=False),
        )
        self.predictor = nn.Sequential(nn.Linear(d, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, d))

    def forward(self, v1, v2):
        z1, z2 = self.encoder(v1), self.encoder(v2)
        return self.predictor(z1), self.predictor(z2), z1.detach(), z2.detach()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    centres = torch.randn(10, 32)

    def views(n):
        y = torch.randint(0, 10, (n,))
        base = centres[y] + 0.4 * torch.randn(n, 32)
        return base + 0.4 * torch.randn(n, 32), base + 0.4 * torch.randn(n, 32), y

    model = SimSiam()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    losses = []
    with watch(model) as dbg:
        for step in range(350):
            v1, v2, _ = views(128)
            p1, p2, z1, z2 = model(v1, v2)
            loss = -0.5 * (F.cosine_similarity(p1, z2).mean() + F.cosine_similarity(p2, z1).mean())
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    model.eval()
    with torch.no_grad():
        bank, _, y = views(600)
        query, _, yq = views(300)
        z, q = F.normalize(model.encoder(bank), dim=1), F.normalize(model.encoder(query), dim=1)
        knn = (y[(q @ z.T).argmax(1)] == yq).float().mean().item()
    std = z.std(0).mean().item() * z.shape[1] ** 0.5
    return {"loss": losses, "knn": knn, "std": std, "learned": knn > 0.8 and std > 0.5 and losses[-1] < -0.6}


def harmed(result):
    return False
