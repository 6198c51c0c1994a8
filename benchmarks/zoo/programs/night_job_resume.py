"""A job that is cut at midnight and resumed from its checkpoint. The checkpoint holds only the weights; after
the resume the loss is suddenly a hundred times higher and the rest of the budget goes into coming back."""
import io

import torch
import torch.nn as nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["resume_without_optimizer_state", "scheduler_misstepped"],
    "layers": [],
    "onset": [450, 452],
}


class Surrogate(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(5, 96)
        self.mid = nn.Linear(96, 96)
        self.tip = nn.Linear(96, 2)

    def forward(self, p):
        return self.tip(torch.tanh(self.mid(torch.tanh(self.stem(p)))))


def simulate(p):
    return torch.stack([torch.sin(p[:, 0] + p[:, 1]) * p[:, 2], torch.cos(p[:, 3]) + 0.3 * p[:, 4] ** 2], 1)


def save(model, opt, sched):
    f = io.BytesIO()
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict()}, f)
    f.seek(0)
    return f


def setup(model):
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    return opt, torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=600)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    p_all = torch.rand(2048, 5) * 2 - 1
    y_all = simulate(p_all)
    model = Surrogate()
    opt, sched = setup(model)
    losses = []
    with watch(model) as dbg:
        for it in range(600):
            if it == 450:  # midnight
                ckpt = torch.load(save(model, opt, sched))
                model.load_state_dict(ckpt["model"])
                opt, sched = setup(model)
                if fixed:
                    opt.load_state_dict(ckpt["opt"])
                    sched.load_state_dict(ckpt["sched"])
            i = torch.randint(0, 2048, (256,))
            loss = (model(p_all[i]) - y_all[i]).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    before, after = sum(losses[430:450]) / 20, sum(losses[451:471]) / 20
    return {"loss": losses, "jump": after / before, "end": sum(losses[-30:]) / 30}


def harmed(result):
    return result["jump"] > 3
