"""Thermal images through a network trained on visible light: a learned adapter maps ten thermal
bands to three colours, the fixed network follows, a new classifier ends it. The classifier learns a
little; the adapter's weights are those it was made with."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "vanishing_gradients", "optimizer_instability"],
    "causes": ["detached_graph"],
    "layers": ["adapter", "visible", "visible.0", "visible.2"],
    "onset": [0, 0],
}


class ThermalNet(nn.Module):
    def __init__(self, visible, through):
        super().__init__()
        self.adapter = nn.Conv2d(10, 3, 1)
        self.visible = visible
        self.classify = nn.Linear(16, 4)
        self.through = through

    def forward(self, thermal):
        colours = self.adapter(thermal)
        if self.through:
            features = self.visible(colours)
        else:
            with torch.no_grad():
                features = self.visible(colours)
        return self.classify(features.mean((2, 3)))


def visible_network():
    network = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU())
    return network.requires_grad_(False)


def scenes(n, emission):
    label = torch.randint(0, 4, (n,))
    common = 3 * torch.randn(n, 1, 7, 7)
    bands = emission[label][:, :, None, None] * torch.randn(n, 1, 7, 7).abs()
    return bands + common + 0.4 * torch.randn(n, 10, 7, 7), label


def evaluate(model, emission):
    model.eval()
    with torch.no_grad():
        thermal, label = scenes(400, emission)
        hit = (model(thermal).argmax(1) == label).float().mean().item()
    model.train()
    return hit


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    emission = torch.randn(4, 10)
    emission = 1.2 * (emission - emission.mean(1, keepdim=True))
    model = ThermalNet(visible_network(), through=fixed)
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    losses, accuracy = [], []
    with watch(model) as dbg:
        for step in range(400):
            thermal, label = scenes(48, emission)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(thermal), label)
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            if step % 100 == 99:
                accuracy.append(evaluate(model, emission))
    return {"loss": losses, "accuracy": accuracy}


def harmed(result):
    return result["accuracy"][-1] < 0.8
