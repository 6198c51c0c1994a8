"""Keyword spotting with bf16 autocast; the gradient scaler was kept from the fp16 recipe, clipping was added last week.

Since the clipping came in, the accuracy stays at chance and the weights hardly move.
"""
import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring", "vanishing_gradients", "optimizer_instability"],
    "causes": ["clip_before_unscale"],
    "layers": [],
    "onset": [0, 0],
}
WORDS, BANDS, FRAMES = 6, 20, 32


def spotter():
    return nn.Sequential(
        nn.Conv1d(BANDS, 32, 5, stride=2, padding=2),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.Conv1d(32, 48, 5, stride=2, padding=2),
        nn.GroupNorm(4, 48),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(48, WORDS),
    )


class Corpus(torch.utils.data.Dataset):
    def __init__(self, n, templates):
        self.y = torch.randint(0, WORDS, (n,))
        self.x = templates[self.y] + 0.9 * torch.randn(n, BANDS, FRAMES)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def train_step(model, batch, opt, scaler, params, fixed):
    x, y = batch
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x)
    loss = nn.functional.cross_entropy(logits.float(), y)
    scaler.scale(loss).backward()
    if fixed:
        scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(params, max_norm=1.0)
    scaler.step(opt)
    scaler.update()
    return loss.detach()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    templates = torch.randn(WORDS, BANDS, FRAMES) * 0.5
    train_set, test_set = Corpus(1024, templates), Corpus(256, templates)
    loader = torch.utils.data.DataLoader(train_set, batch_size=32, shuffle=True)
    model = spotter()
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15)
    losses = []
    with watch(model) as dbg:
        for _ in range(6):
            for batch in loader:
                value = train_step(model, batch, opt, scaler, params, fixed).item()
                dbg.record_loss(value)
                losses.append(value)
    with torch.no_grad():
        acc = (model(test_set.x).argmax(1) == test_set.y).float().mean().item()
    return {"loss": losses, "accuracy": acc}


def harmed(result):
    return result["accuracy"] < 0.7
