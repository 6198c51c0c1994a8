"""Train a net that cannot learn, and let NeuralDBG say why.

Ten sigmoid layers on made data: each layer passes at most a quarter of the
gradient on, so nothing that matters reaches the first ones.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

DEPTH = 10
WIDTH = 64
STEPS = 300


def build_model() -> nn.Sequential:
    """Return the deep sigmoid classifier."""
    layers: list[nn.Module] = [nn.Linear(20, WIDTH), nn.Sigmoid()]
    for _ in range(DEPTH - 1):
        layers += [nn.Linear(WIDTH, WIDTH), nn.Sigmoid()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 2))


def main() -> None:
    """Train, watched; then print the diagnosis."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    inputs = torch.randn(2048, 20)
    targets = (inputs[:, 0] * inputs[:, 1] > 0).long()

    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()

    with NeuralDbg(model) as dbg:
        for step in range(STEPS):
            batch = torch.arange(step * 64, step * 64 + 64) % len(inputs)
            optimizer.zero_grad()
            loss = criterion(model(inputs[batch]), targets[batch])
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)

    print(dbg.explain_failure()[0])
    print(dbg.summary())


if __name__ == "__main__":
    main()
