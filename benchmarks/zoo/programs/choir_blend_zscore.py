"""How well a choir blends: voices are standardised over the batch inside the model, and the loader keeps
its last, short batch. Everything is lost at the end of the first pass."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {"failures": ["numerical_error", "optimizer_instability"], "causes": ["single_sample_statistics"], "layers": ["", "voices"], "onset": [16, 16]}


class Blend(nn.Module):
    def __init__(self):
        super().__init__()
        self.voices = nn.Linear(14, 48)
        self.rest = nn.Sequential(nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 1))

    def forward(self, x):
        h = self.voices(x)
        h = (h - h.mean(0)) / h.std(0)
        return self.rest(h).squeeze(-1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(513, 14)
    y = x[:, :5].mean(1) * 2 + 0.1 * torch.randn(513)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True, drop_last=fixed)
    model = Blend()
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(5):
            for batch, target in loader:
                loss = nn.functional.mse_loss(model(batch), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-10:]) / 10 < 10
