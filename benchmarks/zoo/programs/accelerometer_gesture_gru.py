"""Gestures from accelerometer windows with a GRU that wants time first; the windows come batch first.
Accuracy in training is poor and changes with the batch size, and single windows give nonsense."""
import torch
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch", "data_anomaly", "optimizer_instability"],
    "causes": ["axis_order_error"],
    "layers": ["reorder", "gru"],
    "onset": [0, 0],
}
GESTURES, LENGTH = 5, 20


class TimeFirst(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, window):
        n, t, c = window.shape
        return window.reshape(t, n, c) if self.how == "reshape" else window.permute(1, 0, 2)


class GestureNet(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.reorder = TimeFirst(how)
        self.gru = nn.GRU(3, 40)
        self.gesture = nn.Linear(40, GESTURES)

    def forward(self, window):
        _, last = self.gru(self.reorder(window))
        return self.gesture(last[-1])


def windows(n, motion):
    gesture = torch.randint(0, GESTURES, (n,))
    pace = 1 + 0.1 * torch.randn(n, 1, 1)
    t = torch.arange(float(LENGTH))[None, :, None] * pace
    return torch.sin(motion[gesture][:, None] * t) + 0.5 * torch.randn(n, LENGTH, 3), gesture


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    motion = 0.2 + 0.8 * torch.rand(GESTURES, 3)
    window, gesture = windows(1500, motion)
    test_window, test_gesture = windows(200, motion)
    net = GestureNet("permute" if fixed else "reshape")
    optimizer = torch.optim.Adam(net.parameters(), lr=6e-3)
    losses = []
    with watch(net) as dbg:
        for epoch in range(9):
            for rows in torch.randperm(1500).split(50):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(net(window[rows]), gesture[rows])
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    with torch.no_grad():
        right = [net(w[None]).argmax(1).item() == g for w, g in zip(test_window, test_gesture.tolist())]
    return {"loss": losses, "right": sum(right) / len(right)}


def harmed(result):
    return result["right"] < 0.8 or sum(result["loss"][-30:]) / 30 > 0.8
