"""Aspects of restaurant reviews with nn.TransformerEncoderLayer on batch-first input. Training is so-so;
the same review gets other answers when it is scored together with other reviews."""
import torch
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch", "data_anomaly", "optimizer_instability"],
    "causes": ["axis_order_error"],
    "layers": ["encoder", "encoder.self_attn"],
    "onset": [0, 0],
}
WORDS, LENGTH = 40, 12


class AspectNet(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.word = nn.Embedding(WORDS, 32)
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, norm_first=True, **options)
        self.aspect = nn.Linear(32, 2)

    def forward(self, review):
        h = self.encoder(self.word(review))
        return self.aspect(h[:, 0])


def reviews(n):
    """Two marked words somewhere in the review decide together."""
    review = torch.randint(8, WORDS, (n, LENGTH))
    place = torch.rand(n, LENGTH - 1).argsort(1)[:, :2] + 1
    marks = torch.stack([torch.randint(0, 4, (n,)), torch.randint(4, 8, (n,))], 1)
    review = review.scatter(1, place, marks)
    review[:, 0] = 39
    return review, ((marks[:, 0] >= 2) & (marks[:, 1] >= 6)).long()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = AspectNet(batch_first=True) if fixed else AspectNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(300):
            review, aspect = reviews(48)
            loss = nn.functional.cross_entropy(net(review), aspect)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.3
