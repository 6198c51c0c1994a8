"""Writers from the slant of pen strokes; the criterion of an older script was kept when the network
was rewritten. The loss goes below zero and further down, accuracy falls apart."""
import torch
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch", "numerical_error"],
    "causes": ["logits_into_probability_loss"],
    "layers": [],
    "onset": [0, 0],
}
WRITERS = 5


class StrokeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(2, 24, 5, stride=2), nn.ReLU(), nn.Conv1d(24, 24, 3), nn.ReLU())
        self.writer = nn.Linear(24, WRITERS)

    def forward(self, stroke):
        return self.writer(self.conv(stroke).mean(-1))


def strokes(n, slant):
    who = torch.randint(0, WRITERS, (n,))
    t = torch.linspace(0, 9, 30)
    speed = 1 + 0.2 * torch.randn(n, 1)
    y = torch.sin(speed * t + 6 * torch.rand(n, 1))
    x = slant[who][:, None] * y + 0.3 * torch.cos(2 * speed * t)
    return torch.stack([x, y], 1) + 0.1 * torch.randn(n, 2, 30), who


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    slant = torch.linspace(-1, 1, WRITERS)
    net = StrokeNet()
    criterion = nn.CrossEntropyLoss() if fixed else nn.NLLLoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=6e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(300):
            stroke, who = strokes(64, slant)
            optimizer.zero_grad()
            loss = criterion(net(stroke), who)
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    stroke, who = strokes(500, slant)
    with torch.no_grad():
        accuracy = (net(stroke).argmax(1) == who).float().mean().item()
    return {"loss": losses, "accuracy": accuracy}


def harmed(result):
    return result["accuracy"] < 0.8
