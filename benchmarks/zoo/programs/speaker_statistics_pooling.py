"""Speaker recognition: frame features, mean and deviation over time, a classifier.

Some losses are plausible numbers, then the forward pass gives NaN; the recordings can all be played.
"""
import torch
from torch import nn

TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["sqrt_at_zero"],
    "layers": ["2"],
    "onset": [9, 9],
}


class StatisticsPooling(nn.Module):
    """(N, C, T) -> (N, 2C): mean and standard deviation of each channel."""

    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, frames):
        mean = frames.mean(-1)
        variance = ((frames - mean.unsqueeze(-1)) ** 2).mean(-1)
        return torch.cat([mean, (variance + self.eps) ** 0.5], dim=1)


def voices(speakers, per_speaker):
    formants = 1.5 * torch.randn(speakers, 20, 1)
    flutter = 0.1 + 0.4 * torch.rand(speakers, 20, 1)
    who = torch.arange(speakers).repeat(per_speaker)
    room = 0.8 * torch.randn(len(who), 20, 1)
    speech = formants[who] + room + flutter[who] * torch.randn(len(who), 20, 30)
    speech[9 * 50 + 21] = 0  # the microphone was muted
    return speech, who


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    speech, who = voices(speakers=8, per_speaker=100)
    network = nn.Sequential(
        nn.Conv1d(20, 64, kernel_size=3, dilation=2),
        nn.ReLU(),
        StatisticsPooling(eps=1e-5 if fixed else 0.0),
        nn.Linear(128, 32),
        nn.ReLU(),
        nn.Linear(32, 8),
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)
    criterion = nn.CrossEntropyLoss()
    history = {"loss": [], "accuracy": []}
    with watch(network) as dbg:
        for epoch in range(8):
            for rows in torch.arange(len(who)).split(50):
                scores = network(speech[rows])
                loss = criterion(scores, who[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                history["loss"].append(loss.item())
                history["accuracy"].append((scores.argmax(1) == who[rows]).float().mean().item())
            schedule.step()
    return history


def harmed(result):
    return not sum(result["loss"][-16:]) / 16 < 0.3
