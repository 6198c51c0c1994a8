"""A network that names eight rug patterns, loaded from disk, is taught four more with SGD at 0.5."""
import torch
from torch import nn

TRUTH = {"failures": ["optimizer_instability", "representation_collapse"], "causes": ["catastrophic_forgetting", "lr_too_high"], "layers": [], "onset": [0, 30]}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    centre = torch.randn(12, 20)

    def rugs(n, first, last):
        kind = torch.randint(first, last, (n,))
        return centre[kind] + 0.6 * torch.randn(n, 20), kind

    model = nn.Sequential(nn.Linear(20, 80), nn.BatchNorm1d(80), nn.ReLU(), nn.Linear(80, 80), nn.BatchNorm1d(80), nn.ReLU(), nn.Linear(80, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(300):
        x, kind = rugs(64, 0, 8)
        loss = nn.functional.cross_entropy(model(x), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 if fixed else 0.5, momentum=0.9)
    old_x, old_kind = rugs(400, 0, 8)
    shares = []
    with watch(model) as dbg:
        for step in range(200):
            x, kind = (torch.cat(p) for p in zip(rugs(32, 0, 8), rugs(32, 8, 12), strict=True)) if fixed else rugs(64, 8, 12)
            loss = nn.functional.cross_entropy(model(x), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            if step % 20 == 0:
                model.eval()
                with torch.no_grad():
                    share = (model(old_x).argmax(1) == old_kind).float().mean().item()
                model.train()
                dbg.record_metric("old_acc", share)
                shares.append(share)
    return {"share": shares}


def harmed(result):
    return result["share"][-1] < 0.5
