"""Spam pages in a link graph: two rounds of message passing and a probability per page. Even on the
training pages the loss does not come near zero."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["sigmoid_before_logits_loss"],
    "layers": ["spam", "spam.1"],
    "onset": [0, 0],
}


class LinkNet(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.first, self.second = nn.Linear(32, 48), nn.Linear(96, 48)
        self.spam = nn.Sequential(nn.Linear(48, 1), *head)

    def forward(self, page, link):
        h = F.relu(self.first(torch.cat([page, link @ page], 1)))
        h = F.relu(self.second(torch.cat([h, link @ h], 1)))
        return self.spam(h).squeeze(1)


def web(pages=240):
    spam = torch.rand(pages) < 0.3
    same = spam[:, None] == spam[None]
    link = ((torch.rand(pages, pages) < torch.where(same, 0.06, 0.02)).float() + torch.eye(pages)).clamp(max=1)
    page = torch.randn(pages, 16) + 0.5 * spam[:, None].float()
    return page, link / link.sum(1, keepdim=True), spam.float()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    page, link, spam = web()
    known = torch.rand(len(spam)) < 0.7
    model = LinkNet([] if fixed else [nn.Sigmoid()])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
    losses = []
    with watch(model) as dbg:
        for epoch in range(150):
            optimizer.zero_grad()
            score = model(page, link)
            loss = F.binary_cross_entropy_with_logits(score[known], spam[known])
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-10:]) / 10 > 0.35
