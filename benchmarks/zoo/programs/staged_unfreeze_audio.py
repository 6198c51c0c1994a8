"""Spoken digit features: the plan is to train the head alone for one epoch, then the whole network.
After the 'unfreeze' nothing gets better; accuracy stays where the head alone had brought it."""
import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["frozen_parameters"],
    "layers": ["encoder", "encoder.0", "encoder.1", "encoder.3", "encoder.4", "encoder.6"],
    "onset": [0, 41],
}


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(8, 16, 5, stride=2, padding=2), nn.BatchNorm1d(16), nn.ReLU(),
            nn.Conv1d(16, 16, 5, stride=2, padding=2), nn.BatchNorm1d(16), nn.ReLU(),
            nn.Conv1d(16, 8, 3, padding=1),
        )
        self.classifier = nn.Linear(8, 10)

    def forward(self, mel):
        return self.classifier(self.encoder(mel).mean(-1))


def speech(n, patterns):
    digit = torch.randint(0, 10, (n,))
    mel = torch.randn(n, 8, 40) * 1.0
    shift = torch.randint(0, 24, (n,))
    for i in range(n):
        mel[i, :, shift[i]: shift[i] + 16] += patterns[digit[i]]
    return mel, digit


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    patterns = torch.randn(10, 8, 16)
    patterns = patterns - patterns.mean(-1, keepdim=True)
    mel, digit = speech(1280, patterns)
    model = DigitNet()
    for p in model.encoder.parameters():
        p.requires_grad = False
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    log = []
    with watch(model) as dbg:
        for epoch in range(10):
            if epoch == 1:
                for p in model.encoder.parameters():
                    if fixed:
                        p.requires_grad = True
                    else:
                        p.require_grad = True
            for idx in torch.randperm(1280).split(32):
                loss = nn.functional.cross_entropy(model(mel[idx]), digit[idx])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                log.append(loss.item())
    return {"loss": log}


def harmed(result):
    return sum(result["loss"][-40:]) / 40 > 1.2
