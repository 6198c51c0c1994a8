"""Allergies from a wide blood panel with few patients. Validation is good after the first epoch and
gets worse from the second one on, as if the regularisation had been switched off."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["eval_mode_in_training"],
    "layers": [],
    "onset": [20, 20],
}


class PanelNet(nn.Module):
    def __init__(self, markers=120):
        super().__init__()
        self.keep = nn.Dropout(0.6)
        self.fc1 = nn.Linear(markers, 128)
        self.between = nn.Dropout(0.5)
        self.fc2 = nn.Linear(128, 2)

    def forward(self, panel):
        h = torch.relu(self.fc1(self.keep(panel)))
        return self.fc2(self.between(h))


def patients(n, effect):
    panel = torch.randn(n, 120)
    risk = panel @ effect + 2.5 * torch.randn(n)
    return panel, (risk > 0).long()


def validation_loss(net, panel, allergy, back):
    net.eval()
    with torch.no_grad():
        loss = nn.functional.cross_entropy(net(panel), allergy).item()
    if back:
        net.train()
    return loss


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    effect = torch.randn(120) * (torch.rand(120) < 0.15)
    loader = DataLoader(TensorDataset(*patients(400, effect)), batch_size=20, shuffle=True)
    held = patients(1000, effect)
    net = PanelNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    losses, val = [], []
    with watch(net) as dbg:
        net.train()
        for epoch in range(30):
            for panel, allergy in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(net(panel), allergy)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                dbg.record_loss(loss.item())
            val.append(validation_loss(net, *held, back=fixed))
    return {"loss": losses, "val": val}


def harmed(result):
    return result["val"][-1] > 0.65
