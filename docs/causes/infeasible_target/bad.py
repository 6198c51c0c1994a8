"""Ask CTC for a transcript longer than its recording.

Six time steps cannot spell eight letters in any alignment: the probability is zero and the loss
infinite.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
letters = torch.randint(1, 6, (256, 4))
sound = nn.functional.one_hot(letters, 6).float().repeat_interleave(3, dim=1)
sound = sound + 0.1 * torch.randn(256, 12, 6)
frames, spelled = torch.full((256,), 12), torch.full((256,), 4)
frames[100] = 2
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 6))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(8):
        for rows in torch.arange(len(letters)).split(32):
            scores = model(sound[rows]).log_softmax(2).transpose(0, 1)
            loss = nn.functional.ctc_loss(scores, letters[rows], frames[rows], spelled[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
