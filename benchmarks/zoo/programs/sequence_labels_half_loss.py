"""Tagging of sensor strings, mixed precision with a gradient scaler on the CPU. After 500 updates a path-length
term on the states is added; from then on nothing is learned, the loss just stands."""
import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["numerical_error", "training_wiring"],
    "causes": ["half_precision_underflow", "loss_scale_collapse", "sqrt_at_zero"],
    "layers": [],
    "onset": [500, 500],
}


class Tagger(nn.Module):
    def __init__(self, tags=5):
        super().__init__()
        self.gru = nn.GRU(6, 24, batch_first=True)
        self.tag = nn.Linear(24, tags)

    def forward(self, x):
        states = self.gru(x)[0]
        return states, self.tag(states)


def strings(n, tables, late):
    x = torch.randn(n, 12, 6)
    run = torch.cumsum(x, 1) / torch.arange(1, 13).sqrt()[:, None]
    return x, (run @ tables[int(late)]).argmax(-1)


def travel(states, half):
    """Mean path length of the hidden state, in the units of the drive (a tenth of a millimetre)."""
    h = states.half() if half else states
    move = (h[:, 1:] - h[:, :-1]) * 1e-4
    return move.square().sum(-1).sqrt().float().mean()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    tables = torch.randn(2, 6, 5)
    net = Tagger()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    losses, scales = [], []
    with watch(net) as dbg:
        for step in range(1300):
            x, y = strings(32, tables, late=step >= 500)
            states, logits = net(x)
            task = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            loss = task
            if step >= 500:
                loss = loss + 50.0 * travel(states, half=not fixed)
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            losses.append(task.item())
            dbg.record_loss(loss.item())
            scales.append(scaler.get_scale())
    return {"loss": losses, "scale": scales, "end": sum(losses[-50:]) / 50}


def harmed(result):
    return not result["end"] < 0.8
