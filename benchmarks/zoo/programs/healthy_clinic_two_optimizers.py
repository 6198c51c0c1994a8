"""Waits in a clinic: embeddings of doctors with Adagrad, the network on top with SGD, both stepped per batch."""

import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class WaitingNet(nn.Module):
    def __init__(self, doctors=25, rooms=12, width=8):
        super().__init__()
        self.doctor = nn.Embedding(doctors, width)
        self.room = nn.Embedding(rooms, width)
        self.rest = nn.Sequential(nn.Linear(2 * width + 2, 48), nn.Tanh(), nn.Linear(48, 1))

    def forward(self, doctor, room, hour):
        return self.rest(torch.cat([self.doctor(doctor), self.room(room), hour], 1)).squeeze(1)


def visits(n):
    pace, size = torch.randn(25), torch.randn(12)
    doctor, room, hour = torch.randint(0, 25, (n,)), torch.randint(0, 12, (n,)), torch.randn(n, 2)
    wait = pace[doctor] * torch.sigmoid(hour[:, 0]) + 0.6 * size[room] + 0.3 * hour[:, 1]
    return doctor, room, hour, (wait - wait.mean()) / wait.std() + 0.1 * torch.randn(n)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    doctor, room, hour, wait = visits(4000)
    net = WaitingNet()
    tables = torch.optim.Adagrad([*net.doctor.parameters(), *net.room.parameters()], lr=0.1)
    network = torch.optim.SGD(net.rest.parameters(), lr=0.05, momentum=0.9)
    losses = []
    with watch(net) as dbg:
        for step in range(450):
            rows = torch.randint(0, 4000, (64,))
            for optimizer in (tables, network):
                optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(doctor[rows], room[rows], hour[rows]), wait[rows])
            loss.backward()
            tables.step()
            network.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    last = sum(losses[-30:]) / 30
    return {"loss": losses, "last": last, "learned": last < 0.15}


def harmed(result):
    return False
