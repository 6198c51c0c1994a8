"""A learned audio codec: encoder and decoder are separate modules, one optimizer. The bit rate is
fine, but what is decoded stays rough, and a bigger decoder is no better."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["parameters_not_in_optimizer"],
    "layers": ["decoder", "decoder.0", "decoder.2", "decoder.4"],
    "onset": [0, 0],
}


class Codec(nn.Module):
    def __init__(self, frame=32, code=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(frame, 64), nn.GELU(), nn.Linear(64, code))
        self.decoder = nn.Sequential(nn.Linear(code, 64), nn.GELU(), nn.Linear(64, 16), nn.GELU(), nn.Linear(16, frame))

    def forward(self, frame):
        return self.decoder(torch.tanh(self.encoder(frame)))


def frames(n):
    t = torch.arange(32.0)
    pitch, phase = 0.2 + 0.5 * torch.rand(n, 1), 6.28 * torch.rand(n, 1)
    return torch.sin(pitch * t + phase) * (0.5 + torch.rand(n, 1))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    audio = frames(2000)
    codec = Codec()
    learnt = [codec.encoder] + ([codec.decoder] if fixed else [])
    optimizer = torch.optim.Adam([p for part in learnt for p in part.parameters()], lr=4e-3)
    losses = []
    with watch(codec) as dbg:
        for step in range(400):
            frame = audio[torch.randint(0, 2000, (64,))]
            loss = (codec(frame) - frame).abs().mean()
            codec.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.3
