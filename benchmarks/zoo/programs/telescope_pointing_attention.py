"""Which of ten guide stars fits the request: one attention head over large features, weights drawn from
a unit normal. Each request looks at one star only from the beginning, usually the wrong one."""
import torch
from torch import nn

TRUTH = {
    "failures": ["representation_collapse", "vanishing_gradients", "optimizer_instability", "saturated_activations", "exploding_gradients"],
    "causes": ["attention_collapse", "init_too_large"],
    "layers": ["head", "head.query", "head.key"],
    "onset": [0, 0],
}


class Head(nn.Module):
    def __init__(self, inputs, width, careful):
        super().__init__()
        self.query, self.key = nn.Linear(inputs, width, bias=False), nn.Linear(inputs, width, bias=False)
        self.scale = 1.0
        if careful:
            self.scale = width**-0.5
        else:
            for layer in (self.query, self.key):
                nn.init.normal_(layer.weight)

    def forward(self, asked, stars):
        score = torch.einsum("nw,nsw->ns", self.query(asked), self.key(stars)) * self.scale
        return torch.softmax(score, -1)


class Pointing(nn.Module):
    def __init__(self, careful, inputs=24):
        super().__init__()
        self.head = Head(inputs, 64, careful)
        self.value = nn.Linear(inputs, 32)
        self.offset = nn.Linear(32, 2)

    def forward(self, asked, stars):
        share = self.head(asked, stars)
        return self.offset((share[..., None] * self.value(stars)).sum(1)), share


def sky(n):
    stars = torch.randn(n, 10, 24)
    which = torch.randint(0, 10, (n,))
    chosen = stars[torch.arange(n), which]
    asked = torch.cat([chosen[:, :12], torch.randn(n, 12)], 1)
    return asked, stars, chosen[:, 20:22]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Pointing(careful=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses, entropy = [], []
    with watch(model) as dbg:
        for step in range(400):
            asked, stars, offset = sky(64)
            guess, share = model(asked, stars)
            loss = nn.functional.mse_loss(guess, offset)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            entropy.append(-(share * (share + 1e-9).log()).sum(1).mean().item())
    return {"loss": losses, "entropy": entropy}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.6
