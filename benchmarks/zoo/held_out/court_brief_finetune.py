"""A classifier of court briefs, trained on civil law, is tuned on tax law with the settings of the
first training. Tax law goes well; the clerks of civil law complain."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["representation_collapse", "optimizer_instability"],
    "causes": ["catastrophic_forgetting"],
    "layers": [],
    "onset": [0, 60],
}

WORDS, CLASSES, LENGTH = 90, 5, 10


class BriefEncoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 64, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.verdict = nn.Linear(width, CLASSES)

    def forward(self, brief):
        return self.verdict(self.norm(self.encoder(self.words(brief)).mean(1)))


class Court:
    """Each court has words of its own and some in common; words hint at verdicts."""

    def __init__(self, first, hints):
        self.first, self.hints = first, hints

    def briefs(self, n):
        own = torch.randint(self.first, self.first + 50, (n, LENGTH))
        verdict = self.hints[own].sum(1).argmax(-1)
        return own, verdict


def fit(model, optimizer, batches, record):
    for brief, verdict in batches:
        loss = F.cross_entropy(model(brief), verdict)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        record(loss.item())


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    hints = torch.randn(WORDS, CLASSES)
    civil = Court(0, hints)
    other = torch.cat([hints[:40], torch.randn(10, CLASSES), torch.randn(40, CLASSES)])
    tax = Court(40, other)
    model = BriefEncoder()
    first = torch.optim.Adam(model.parameters(), lr=2e-3)
    fit(model, first, (civil.briefs(48) for _ in range(300)), lambda _: None)
    test_brief, test_verdict = civil.briefs(500)
    new_brief, new_verdict = tax.briefs(500)

    def cost(brief, verdict):
        with torch.no_grad():
            return F.cross_entropy(model(brief), verdict).item()

    def tuning():
        for _ in range(250):
            if fixed:
                pairs = zip(tax.briefs(32), civil.briefs(32))
                yield tuple(torch.cat(pair) for pair in pairs)
            else:
                yield tax.briefs(48)

    before, losses = cost(test_brief, test_verdict), []
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4 if fixed else 2e-3)
    with watch(model) as dbg:

        def record(loss):
            losses.append(loss)
            dbg.record_loss(loss)
            if len(losses) % 25 == 0:
                model.eval()
                dbg.record_loss(cost(test_brief, test_verdict), "civil law")
                model.train()

        fit(model, optimizer, tuning(), record)
    return {
        "loss": losses,
        "before": before,
        "civil": cost(test_brief, test_verdict),
        "tax": cost(new_brief, new_verdict),
    }


def harmed(result):
    return result["civil"] > result["before"] + 0.6
