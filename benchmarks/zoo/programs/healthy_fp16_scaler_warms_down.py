"""fp16 autocast with a GradScaler that starts far too high: the first steps are skipped while the scale halves, and
then it trains."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    w = torch.randn(20, 5)
    model = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 5))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=100)
    losses, scales = [], []
    with watch(model) as dbg:
        for it in range(350):
            x = torch.randn(64, 20)
            y = (x @ w + 0.5 * torch.sin(3 * x[:, :5])).argmax(1)
            opt.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            losses.append(loss.item())
            scales.append(scaler.get_scale())
            dbg.record_loss(loss.item())
    return {"loss": losses, "scale": scales, "learned": sum(losses[-20:]) / 20 < 0.5}


def harmed(result):
    return False
