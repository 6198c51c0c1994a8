"""Which of five guitar pickups a chord came from; twenty tanh layers, 'gain 8 so that the signal does not die'.

Hidden values are all at the ends of the range and the loss hardly leaves chance.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["saturated_activations", "vanishing_gradients", "exploding_gradients", "optimizer_instability"],
    "causes": ["saturating_activations", "init_too_large"],
    "layers": [f"stack.{i}" for i in range(40)] + ["stack"],
    "onset": [0, 0],
}


class PickupNet(nn.Module):
    def __init__(self, partials=30, width=64, depth=20, pickups=5, gain=8.0):
        super().__init__()
        steps = []
        for k in range(depth):
            linear = nn.Linear(partials if k == 0 else width, width)
            nn.init.xavier_uniform_(linear.weight, gain=gain)
            nn.init.zeros_(linear.bias)
            steps += [linear, nn.Tanh()]
        self.stack = nn.Sequential(*steps)
        self.pickup = nn.Linear(width, pickups)

    def forward(self, spectrum):
        return self.pickup(self.stack(spectrum))


def chords(n, response):
    pickup = torch.randint(0, len(response), (n,))
    spectrum = torch.randn(n, response.shape[1]) + response[pickup]
    return spectrum, pickup


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    response = torch.randn(5, 30)
    spectrum, pickup = chords(3200, response)
    net = PickupNet(gain=1.0 if fixed else 8.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.005, momentum=0.9)
    losses = []
    with watch(net) as dbg:
        for epoch in range(8):
            for rows in torch.randperm(3200).split(64):
                loss = nn.functional.cross_entropy(net(spectrum[rows]), pickup[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.8
