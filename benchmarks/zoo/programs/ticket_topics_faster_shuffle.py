"""Support tickets sorted into eight topics from their words. To save time the later epochs shuffle the whole
arrays once per epoch instead of indexing; from then on the accuracy goes down to guessing."""
import torch
from torch import nn

ARCHITECTURE = "Embedding / factorisation"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["labels_unrelated_to_inputs"],
    "layers": [],
    "onset": [480, 480],
}
VOCAB, TOPICS, LENGTH = 400, 8, 20


class TopicBag(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(VOCAB, 32, mode="mean")
        self.hidden = nn.Linear(32, 48)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(48, TOPICS)

    def forward(self, tokens):
        return self.out(self.drop(torch.relu(self.hidden(self.words(tokens)))))


def tickets(n):
    topic = torch.randint(TOPICS, (n,))
    own = topic[:, None] * 40 + torch.randint(40, (n, LENGTH))
    common = torch.randint(VOCAB, (n, LENGTH))
    return torch.where(torch.rand(n, LENGTH) < 0.35, own, common), topic


def epochs(tokens, topic, count, fixed):
    for epoch in range(count):
        if epoch < 12:
            order = torch.randperm(len(tokens))
            for rows in order.split(60):
                yield tokens[rows], topic[rows]
        else:
            order = torch.randperm(len(tokens))
            mixed = tokens[order]
            labels = topic[order] if fixed else topic
            yield from zip(mixed.split(60), labels.split(60))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    tokens, topic = tickets(2400)
    test_tokens, test_topic = tickets(800)
    model = TopicBag()
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    losses = []
    with watch(model) as dbg:
        for batch, label in epochs(tokens, topic, 36, fixed):
            loss = nn.functional.cross_entropy(model(batch), label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    model.eval()
    with torch.no_grad():
        hit = (model(test_tokens).argmax(1) == test_topic).float().mean().item()
    return {"loss": losses, "test": hit, "late": sum(losses[-40:]) / 40}


def harmed(result):
    return result["late"] > 1.2
