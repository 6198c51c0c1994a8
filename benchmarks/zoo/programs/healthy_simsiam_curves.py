"""SimSiam on noisy curves: the target side is detached on purpose, the loss is a negative cosine that goes to -0.9."""
import torch
import torch.nn as nn
import torch.nn.functional as F

ARCHITECTURE = "Contrastive"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class SimSiam(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv1d(1, 24, 7, 2, 3, bias=False), nn.BatchNorm1d(24), nn.ReLU(),
            nn.Conv1d(24, 48, 5, 2, 2, bias=False), nn.BatchNorm1d(48), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten())
        self.projector = nn.Sequential(nn.Linear(192, d, bias=False), nn.BatchNorm1d(d), nn.ReLU(),
                                       nn.Linear(d, d, bias=False), nn.BatchNorm1d(d, affine=False))
        self.predictor = nn.Sequential(nn.Linear(d, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, d))

    def forward(self, a, b):
        za, zb = self.projector(self.backbone(a)), self.projector(self.backbone(b))
        return self.predictor(za), self.predictor(zb), za.detach(), zb.detach()


def curves(n, coef):
    t = torch.linspace(0, 6.28, 48)
    basis = torch.stack([torch.sin((k + 1) * t) for k in range(6)])
    return (coef[torch.randint(0, len(coef), (n,))] @ basis)[:, None]


def view(x):
    return (1 + 0.3 * torch.randn(len(x), 1, 1)) * x + 0.4 * torch.randn_like(x)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    coef = torch.randn(40, 6)
    model = SimSiam()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 350)
    losses, spread = [], []
    with watch(model) as dbg:
        for _ in range(350):
            x = curves(64, coef)
            pa, pb, za, zb = model(view(x), view(x))
            loss = -(F.cosine_similarity(pa, zb).mean() + F.cosine_similarity(pb, za).mean()) / 2
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            spread.append(F.normalize(za, dim=1).std(0).mean().item() * 48**0.5)
    return {"loss": losses, "spread": spread, "learned": spread[-1] > 0.6 and losses[-1] < -0.7}


def harmed(result):
    return False
