"""Wave heights from buoys, two gloo processes with DistributedDataParallel. The first process runs here, the
second is started by it; only the first one has the tool."""

import contextlib
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ARCHITECTURE = "DataParallel / DDP"
FAULTS = {
    "inner_module_called": {
        "failures": ["training_wiring"],
        "causes": ["rank_divergence"],
        "layers": [],
        "onset": [0, 3],
    },
    "seeds_by_rank": {
        "failures": ["training_wiring"],
        "causes": ["rank_divergence"],
        "layers": [],
        "onset": [0, 0],
    },
    "one_bad_buoy": {
        "failures": ["data_anomaly", "numerical_error"],
        "causes": ["nan_in_input"],
        "layers": [],
        "onset": [50, 50],
    },
    "rate_per_process": {
        "failures": ["optimizer_instability", "exploding_gradients", "dead_neurons", "numerical_error"],
        "causes": ["lr_too_high"],
        "layers": [],
        "onset": [0, 20],
    },
}


def waves(n, rank):
    make = torch.Generator().manual_seed(1000 + rank)
    x = torch.randn(n, 6, generator=make)
    return x, (x[:, 0] * x[:, 1] + (2 * x[:, 2]).sin() + 0.3 * x[:, 3])[:, None]


def work(watch, rank, store, fixed, seed, fault, severity):
    on = "" if fixed else fault
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    try:
        torch.manual_seed(seed + (rank if on == "seeds_by_rank" else 0))
        net = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
        by_hand = fault == "seeds_by_rank"
        model = net if by_hand else DistributedDataParallel(net)
        call = net if on == "inner_module_called" else model
        rate = 8.0 * severity if on == "rate_per_process" else 3e-2
        optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
        x, y = waves(1600, rank)
        losses, worst = [], 0.0
        with watch(model) as dbg:
            for step in range(160):
                rows = torch.randint(0, 1600, (32,))
                batch = x[rows]
                if step == 50 and on == "one_bad_buoy" and rank == 0:
                    batch[4, 2] = float("nan")
                loss = nn.functional.mse_loss(call(batch), y[rows])
                optimizer.zero_grad()
                loss.backward()
                if by_hand:
                    for p in net.parameters():
                        dist.all_reduce(p.grad)
                        p.grad /= 2
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
        mine = torch.cat([p.detach().flatten() for p in net.parameters()])
        both = [torch.empty_like(mine), torch.empty_like(mine)]
        dist.all_gather(both, mine)
        worst = (both[0] - both[1]).abs().max().item()
        return {"loss": losses, "apart": worst}
    finally:
        dist.destroy_process_group()


def train(watch, fixed=False, seed=0, fault="inner_module_called", severity=1.0):
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store"
        arguments = [store, str(int(fixed)), str(seed), fault, str(severity)]
        other = subprocess.Popen([sys.executable, __file__, *arguments], stderr=subprocess.DEVNULL)
        try:
            result = work(watch, 0, store, fixed, seed, fault, severity)
            other.wait(timeout=600)
        finally:
            if other.poll() is None:
                other.kill()
                other.wait()
        return result


def harmed(result):
    return not (result["apart"] < 1e-4 and sum(result["loss"][-20:]) / 20 < 0.4)


class Nothing(contextlib.AbstractContextManager):
    def __init__(self, model):
        self.model = model

    def __exit__(self, *error):
        return None

    def record_loss(self, value):
        pass


if __name__ == "__main__":
    torch.set_num_threads(1)
    path, without, number, name, much = sys.argv[1:]
    work(Nothing, 1, path, bool(int(without)), int(number), name, float(much))
