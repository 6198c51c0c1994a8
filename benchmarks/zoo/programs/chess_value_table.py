"""Values of chess endgames from piece embeddings, trained with plain SGD in a short script that
was put together from two notebooks. The first batches look right, then it goes wild."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability", "exploding_gradients"],
    "causes": ["missing_zero_grad"],
    "layers": [],
    "onset": [0, 1],
}


def endgames(n, worth):
    pieces = torch.randint(0, 12, (n, 6))
    value = torch.tanh(0.35 * worth[pieces].sum(1) + 0.2 * worth[pieces[:, 0]] * worth[pieces[:, 1]])
    return pieces, value


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    worth = torch.randn(12)
    model = nn.Sequential(
        nn.Embedding(12, 16), nn.Flatten(), nn.Linear(96, 64), nn.Tanh(), nn.Linear(64, 1), nn.Flatten(0)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
    loss_fn = nn.MSELoss()
    running = []
    with watch(model) as dbg:
        for step in range(300):
            pieces, value = endgames(64, worth)
            loss = loss_fn(model(pieces), value)
            loss.backward()
            optimizer.step()
            if fixed:
                optimizer.zero_grad()
            running.append(loss.item())
            dbg.record_loss(running[-1])
    return {"loss": running}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.05
