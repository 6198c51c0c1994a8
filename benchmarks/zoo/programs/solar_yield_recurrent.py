"""Yield of a solar roof from the hours before, with recurrent nets of several kinds."""

import torch
import torch.nn as nn

ARCHITECTURE = "LSTM / GRU"
FAULTS = {
    "free_norm": {
        "failures": ["exploding_gradients", "optimizer_instability", "numerical_error"],
        "causes": ["missing_gradient_clipping", "lr_too_high"],
        "layers": [],
        "onset": [0, 300],
    },
    "long_tanh_memory": {
        "failures": ["vanishing_gradients"],
        "causes": ["recurrent_vanishing"],
        "layers": ["cell", ""],
        "onset": [0, 0],
    },
    "state_without_history": {
        "failures": ["training_wiring", "vanishing_gradients"],
        "causes": ["detached_graph"],
        "layers": ["cell", "", "look"],
        "onset": [0, 0],
    },
    "closed_gates": {
        "failures": ["vanishing_gradients", "saturated_activations"],
        "causes": ["recurrent_vanishing", "init_too_large"],
        "layers": ["cell", ""],
        "onset": [0, 0],
    },
    "sensor_dropout_inf": {
        "failures": ["data_anomaly", "numerical_error"],
        "causes": ["inf_in_input"],
        "layers": [],
        "onset": [55, 55],
    },
}


class YieldNet(nn.Module):
    """One step at a time, since the roof's controller does so, too."""

    def __init__(self, cell, hidden=24, detach=False):
        super().__init__()
        self.look = nn.Linear(3, 16)
        self.cell = cell(16, hidden)
        self.out = nn.Linear(hidden, 1)
        self.detach, self.hidden = detach, hidden

    def forward(self, hours):
        state = hours.new_zeros(len(hours), self.hidden)
        memory = hours.new_zeros(len(hours), self.hidden)
        for hour in hours.unbind(1):
            if self.detach:
                state, memory = state.detach(), memory.detach()
            look = self.look(hour)
            if isinstance(self.cell, nn.LSTMCell):
                state, memory = self.cell(look, (state, memory))
            else:
                state = self.cell(look, state)
        return self.out(state).squeeze(-1)


def roof(n, length, late):
    """The yield is fixed by the mark in the first hours (`late=False`) or by a sum over marked hours."""
    hours = torch.randn(n, length, 3)
    if late:
        hours[..., 2] = (torch.rand(n, length) < 0.25).float()
        return hours, (hours[..., 0] * hours[..., 2]).sum(1) / 2
    return hours, 1.5 * hours[:, :2, 0].sum(1).tanh() + 0.4 * hours[:, 1, 1]


def train(watch, fixed=False, seed=0, fault="free_norm", severity=1.0):
    torch.manual_seed(seed)
    on = "" if fixed else fault
    lost = fault in ("long_tanh_memory", "closed_gates")
    length = {"long_tanh_memory": 24, "closed_gates": 14, "free_norm": 30, "state_without_history": 40}.get(fault, 12)
    cell = nn.RNNCell if on == "long_tanh_memory" else nn.LSTMCell if lost else nn.GRUCell
    net = YieldNet(cell, detach=on == "state_without_history")
    if lost and cell is nn.LSTMCell:
        with torch.no_grad():
            net.cell.bias_ih[24:48] = -8.0 * severity if on == "closed_gates" else 3.0
    if fault == "free_norm":
        with torch.no_grad():
            net.cell.weight_hh.mul_(3.0)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.15 * severity, momentum=0.9)
    else:
        optimizer = torch.optim.Adam(net.parameters(), lr=6e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(350):
            hours, power = roof(32, length, late=not lost)
            if on == "sensor_dropout_inf" and step == 55:
                hours[7, 4, 1] = float("inf")
            loss = nn.functional.mse_loss(net(hours), power)
            optimizer.zero_grad()
            loss.backward()
            if on != "free_norm":
                nn.utils.clip_grad_norm_(net.parameters(), 0.2 if fault == "free_norm" else 1.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "power": power.var().item(), "bar": 0.5 if fault == "free_norm" else 0.15}


def harmed(result):
    return not sorted(result["loss"][-31:], key=lambda x: (x != x, x))[15] < result["bar"]
