"""Engine states from vibration: codes are shifted to start at zero before training. One state is never
reported by the trained model, the healthy one of all things."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["label_index_mismatch"],
    "layers": [],
    "onset": [0, 0],
}
STATES = 6


class Recordings(Dataset):
    def __init__(self, n, signature, first_code):
        self.state = torch.randint(0, STATES, (n,))
        t = torch.linspace(0, 12, 48)
        tone = torch.sin(signature[self.state][:, None] * t + 6.28 * torch.rand(n, 1))
        self.wave = tone + 0.4 * torch.randn(n, 48)
        self.first_code = first_code

    def __len__(self):
        return len(self.state)

    def __getitem__(self, i):
        return self.wave[i], (self.state[i] - self.first_code).clamp(min=0)


def network():
    return nn.Sequential(
        nn.Unflatten(1, (1, 48)), nn.Conv1d(1, 24, 11, stride=2), nn.ReLU(),
        nn.AdaptiveMaxPool1d(2), nn.Flatten(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, STATES),
    )


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    signature = torch.linspace(1.0, 8.0, STATES)
    first_code = 0 if fixed else 1
    recordings = Recordings(1600, signature, first_code)
    loader = DataLoader(recordings, batch_size=50, shuffle=True)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for epoch in range(9):
            for wave, code in loader:
                loss = nn.functional.cross_entropy(model(wave), code)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    test = Recordings(600, signature, first_code)
    with torch.no_grad():
        said = model(test.wave).argmax(1) + first_code
    found = [(said[test.state == s] == s).float().mean().item() for s in range(STATES)]
    return {"loss": losses, "found": found}


def harmed(result):
    return min(result["found"]) < 0.5
