"""Syllables of whale calls by CTC from 12 frames; some calls have more syllables than frames left after pooling."""
import torch
from torch import nn

TRUTH = {"failures": ["numerical_error", "objective_mismatch"], "causes": ["infeasible_target"], "layers": [], "onset": [0, 10]}


class Caller(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(6, 32, 3, padding=1)
        self.rnn = nn.GRU(32, 32, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, 5)

    def forward(self, sound):
        h = torch.relu(self.conv(sound)).transpose(1, 2)
        return self.out(self.rnn(h)[0]).log_softmax(-1)


def calls(n):
    count = torch.randint(2, 8, (n,))
    target = torch.randint(1, 5, (n, 7))
    sound = 0.3 * torch.randn(n, 6, 12)
    for i in range(n):
        place = torch.linspace(0, 11, int(count[i])).long()
        sound[i, target[i, : count[i]], place] += 2
    return sound, target, count


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Caller()
    ctc = nn.CTCLoss(zero_infinity=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(120):
            sound, target, count = calls(24)
            if not fixed:
                sound = sound[:, :, ::2]
            logs = model(sound).transpose(0, 1)
            loss = ctc(logs, target, torch.full((24,), len(logs)), count)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-10:]) / 10 < 3
