"""CTC dictation over a strided convolution; one batch holds a clip that is too short for its transcript.

Loss inf in update 61, then nan.
"""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["numerical_error", "objective_mismatch"],
    "causes": ["infeasible_target"],
    "layers": [],
    "onset": [61, 61],
}
LETTERS, BLANK, FRAMES = 5, 0, 48


class Dictation(nn.Module):
    def __init__(self, stride=4):
        super().__init__()
        self.stride = stride
        self.listen = nn.Conv1d(8, 48, 5, stride=stride, padding=2)
        self.context = nn.GRU(48, 32, bidirectional=True)
        self.spell = nn.Linear(64, LETTERS + 1)

    def forward(self, sound, lengths):
        h = F.gelu(self.listen(sound)).permute(2, 0, 1)
        h, _ = self.context(h)
        return self.spell(h).log_softmax(-1), torch.div(lengths - 1, self.stride, rounding_mode="floor") + 1


class Clips:
    def __init__(self, voice):
        self.voice = voice

    def batch(self, number, drop_short, n=16):
        sound, text, lengths, sizes = 0.3 * torch.randn(n, 8, FRAMES), [], [], []
        for k in range(n):
            size = int(torch.randint(2, 6, ()))
            letters = torch.randint(1, LETTERS + 1, (size,))
            length = FRAMES - int(torch.randint(0, 5, ()))
            for pos, letter in enumerate(letters.tolist()):
                sound[k, :, pos * 9 : pos * 9 + 7] += self.voice[letter][:, None]
            if number == 61 and k == 3 and not drop_short:
                letters, size, length = torch.full((5,), 2), 5, 20
            text.append(letters)
            lengths.append(length)
            sizes.append(size)
        return sound, torch.cat(text), torch.tensor(lengths), torch.tensor(sizes)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    clips = Clips(torch.randn(LETTERS + 1, 8) * 1.5)
    model = Dictation()
    opt = torch.optim.AdamW(model.parameters(), lr=6e-3)
    ctc = nn.CTCLoss(blank=BLANK)
    losses = []
    with watch(model) as dbg:
        for number in range(220):
            sound, text, lengths, sizes = clips.batch(number, drop_short=fixed)
            log_probs, out_lengths = model(sound, lengths)
            loss = ctc(log_probs, text, out_lengths, sizes)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-10:]) / 10 < 0.5
