"""Train a replicated model past its wrapper.

DistributedDataParallel averages the gradients of a backward only where its own forward was called.
A loop that calls the module inside it trains one model per process, and none of them sees all of
the data. Two processes run this: `torchrun --nproc-per-node 2 bad.py`, and
`neuraldbg merge run.ndbg run.rank1.ndbg -o merged.ndbg` joins what they wrote.
"""

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from neuraldbg import NeuralDbg

distributed.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
wrapper = DistributedDataParallel(model)
optimizer = torch.optim.Adam(wrapper.parameters(), lr=0.01)
data = torch.Generator().manual_seed(distributed.get_rank())

with NeuralDbg(wrapper, trace="run.ndbg") as dbg:
    for _ in range(80):
        inputs = torch.randn(64, 8, generator=data)
        targets = inputs[:, :4].sum(1, keepdim=True)
        loss = nn.functional.mse_loss(wrapper.module(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)

distributed.destroy_process_group()
