"""Fold class of protein fragments by similarity to learned motifs, kept with their offsets. The
parameter count in the log looks small, and accuracy stops early."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["unregistered_modules"],
    "layers": ["bank", "bank.motifs", "bank.motifs.0", "bank.motifs.1", "bank.motifs.2"],
    "onset": [0, 0],
}
RESIDUES, FOLDS, LENGTH = 20, 5, 24


class MotifBank(nn.Module):
    """Scores of short motifs at their best place in the fragment."""

    def __init__(self, registered, sizes=(3, 5, 7), count=4):
        super().__init__()
        motifs = [nn.Parameter(0.1 * torch.randn(count, RESIDUES, size)) for size in sizes]
        self.motifs = nn.ParameterList(motifs) if registered else motifs

    def forward(self, onehot):
        return torch.cat([F.conv1d(onehot, motif).amax(-1) for motif in self.motifs], 1)


class FoldNet(nn.Module):
    def __init__(self, registered):
        super().__init__()
        self.bank = MotifBank(registered)
        self.fold = nn.Linear(12, FOLDS)

    def forward(self, residues):
        onehot = F.one_hot(residues, RESIDUES).float().transpose(1, 2)
        return self.fold(self.bank(onehot))


def fragments(n, signature):
    fold = torch.randint(0, FOLDS, (n,))
    residues = torch.randint(0, RESIDUES, (n, LENGTH))
    at = torch.randint(0, LENGTH - 5, (n, 1)) + torch.arange(5)
    return residues.scatter(1, at, signature[fold]), fold


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    signature = torch.randint(0, RESIDUES, (FOLDS, 5))
    net = FoldNet(registered=fixed)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-2)
    losses, accuracy = [], []
    with watch(net) as dbg:
        for step in range(400):
            residues, fold = fragments(64, signature)
            scores = net(residues)
            loss = F.cross_entropy(scores, fold)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            accuracy.append((scores.argmax(1) == fold).float().mean().item())
    return {"loss": losses, "accuracy": sum(accuracy[-30:]) / 30}


def harmed(result):
    return result["accuracy"] < 0.8
