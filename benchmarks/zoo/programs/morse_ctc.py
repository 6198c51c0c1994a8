"""Morse decoder trained with CTC. The mean loss turns inf on some batches and NaN afterwards. Encoder downsamples
time by four; a few recordings are fast (many letters in little time)."""
import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["numerical_error", "objective_mismatch"],
    "causes": ["infeasible_target"],
    "layers": [],
    "onset": [37, 37],
}
LETTERS = 8


class MorseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv1d(LETTERS, 32, 5, stride=2, padding=2), nn.ReLU(), nn.Conv1d(32, 32, 5, stride=2, padding=2), nn.ReLU())
        self.rnn = nn.GRU(32, 32, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, LETTERS + 1)

    def forward(self, wave):
        f, _ = self.rnn(self.down(wave).transpose(1, 2))
        return self.out(f).log_softmax(-1)


def recording(n_letters, per, gen, code):
    text = torch.randint(1, LETTERS + 1, (n_letters,), generator=gen)
    wave = torch.zeros(LETTERS, 64)
    pos = 0
    for c in text.tolist():
        wave[:, pos: pos + per] = code[c - 1][:, None]
        pos += per
    return wave + 0.3 * torch.randn(LETTERS, 64, generator=gen), text


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    gen = torch.Generator().manual_seed(seed)
    code = torch.randn(LETTERS, LETTERS, generator=gen) * 1.5
    data = []
    for k in range(24 * 60):
        n = int(torch.randint(3, 6, (1,), generator=gen))
        if k == 37 * 24 + 5 and not fixed:
            data.append(recording(21, 3, gen, code))
        else:
            data.append(recording(n, 12, gen, code))
    model = MorseNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    ctc = nn.CTCLoss(blank=0)
    losses = []
    with watch(model) as dbg:
        for epoch in range(2):
            for b in range(60):
                items = data[b * 24: b * 24 + 24]
                waves = torch.stack([w for w, _ in items])
                targets = torch.cat([t for _, t in items])
                logp = model(waves)
                loss = ctc(logp.transpose(0, 1), targets,
                           torch.full((24,), logp.shape[1]), torch.tensor([len(t) for _, t in items]))
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-10:]) / 10 < 1.2
