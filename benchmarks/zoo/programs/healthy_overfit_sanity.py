"""The usual sanity check before the real run: one batch of random labels must be memorised, then (from step 500)
the real data. Loss near zero first, then a jump up to chance, then it falls again."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(16, 96)
        self.fc2 = nn.Linear(96, 96)
        self.fc3 = nn.Linear(96, 4)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    centres = 1.2 * torch.randn(4, 16)
    one_x, one_y = torch.randn(32, 16), torch.randint(4, (32,))
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(1300):
            if step < 500:
                x, y = one_x, one_y
            else:
                y = torch.randint(4, (64,))
                x = centres[y] + torch.randn(64, 16)
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    end = sum(losses[-50:]) / 50
    return {"loss": losses, "memorised": losses[499], "end": end, "learned": losses[499] < 0.02 and end < 0.25}


def harmed(result):
    return False
