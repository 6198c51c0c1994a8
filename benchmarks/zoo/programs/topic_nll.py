"""Topic classifier; NLLLoss, because the tutorial used it. Loss is negative and falls below -1000."""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "Embedding / factorisation"
TRUTH = {
    "failures": ["objective_mismatch", "numerical_error"],
    "causes": ["logits_into_probability_loss"],
    "layers": [],
    "onset": [0, 0],
}


class Topics(nn.Module):
    def __init__(self, words=200, topics=5, final=None):
        super().__init__()
        self.bag = nn.EmbeddingBag(words, 32, mode="mean")
        self.ln = nn.LayerNorm(32)
        self.fc1 = nn.Linear(32, 32)
        self.fc2 = nn.Linear(32, topics)
        self.final = final or nn.Identity()

    def forward(self, words):
        return self.final(self.fc2(F.relu(self.fc1(self.ln(self.bag(words))))))


def texts(n):
    share = torch.tensor([0.4, 0.25, 0.15, 0.1, 0.1])
    y = torch.multinomial(share, n, replacement=True)
    own = torch.rand(n, 12) < 0.3
    words = torch.where(own, y[:, None] * 20 + torch.randint(0, 20, (n, 12)), torch.randint(100, 200, (n, 12)))
    return words, y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    words, y = texts(2400)
    net = Topics(final=nn.LogSoftmax(dim=1) if fixed else None)
    criterion = nn.NLLLoss()
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    with watch(net) as dbg:
        for epoch in range(8):
            for rows in torch.randperm(2400).split(60):
                loss = criterion(net(words[rows]), y[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                dbg.record_loss(loss.item())
    words, y = texts(500)
    with torch.no_grad():
        acc = (net(words).argmax(1) == y).float().mean().item()
    return {"loss": losses, "acc": acc}


def harmed(result):
    return result["acc"] < 0.8 or min(result["loss"]) < -10
