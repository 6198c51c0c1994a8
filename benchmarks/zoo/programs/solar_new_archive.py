"""Solar yield from eight sky-camera channels. From the ninth archive on the channels are read as raw counts;
the training loss settles again, but in operation (calibrated channels) the forecasts are useless."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability"],
    "causes": ["input_distribution_shift"],
    "layers": [],
    "onset": [960, 960],
}
ARCHIVES, PER_ARCHIVE, BATCH, CHANNELS = 14, 120, 40, 8


class Archive:
    gain, offset = 3.0, 4.0

    def __init__(self, number, sky, calibrated):
        self.number, self.sky, self.calibrated = number, sky, calibrated

    def __iter__(self):
        for _ in range(PER_ARCHIVE):
            x = torch.randn(BATCH, CHANNELS)
            y = torch.tanh(x @ self.sky[0]) - 0.5 * (x @ self.sky[1]) ** 2
            counts = x * self.gain + self.offset
            yield ((counts - self.offset) / self.gain if self.calibrated else counts), y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    sky = torch.randn(2, CHANNELS) / CHANNELS**0.5
    model = nn.Sequential()
    model.add_module("mix", nn.Linear(CHANNELS, 48))
    model.add_module("act1", nn.GELU())
    model.add_module("deep", nn.Linear(48, 48))
    model.add_module("act2", nn.GELU())
    model.add_module("yield_", nn.Linear(48, 1))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for number in range(ARCHIVES):
            for x, y in Archive(number, sky, calibrated=fixed or number < 8):
                loss = (model(x).flatten() - y).abs().mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                opt.step()
                losses.append(loss.item())
                dbg.record_loss(loss.item())
    x = torch.randn(1000, CHANNELS)
    y = torch.tanh(x @ sky[0]) - 0.5 * (x @ sky[1]) ** 2
    with torch.no_grad():
        operation = (model(x).flatten() - y).abs().mean().item()
    return {"loss": losses, "operation": operation, "spread": (y - y.mean()).abs().mean().item()}


def harmed(result):
    return result["operation"] > 0.5 * result["spread"]
