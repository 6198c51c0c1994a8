"""Volatility from long return series with a plain tanh RNN. There is a clip in the loop, so the
user rules out exploding gradients; the loss jumps by orders of magnitude all the same."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring", "exploding_gradients", "optimizer_instability"],
    "causes": ["clip_after_step"],
    "layers": [],
    "onset": [0, 20],
}


class VolatilityRNN(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.rnn = nn.RNN(1, hidden, batch_first=True, nonlinearity="relu")
        self.level = nn.Linear(hidden, 1)
        nn.init.eye_(self.rnn.weight_hh_l0)
        nn.init.normal_(self.rnn.weight_ih_l0, std=0.3)
        for bias in (self.rnn.bias_ih_l0, self.rnn.bias_hh_l0):
            nn.init.zeros_(bias)

    def forward(self, returns):
        return self.level(self.rnn(returns)[0][:, -1]).squeeze(1)


def series(n, length=50):
    sigma = torch.exp(0.5 * torch.randn(n, 1))
    returns = sigma * torch.randn(n, length)
    return returns[..., None], returns.abs().mean(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = VolatilityRNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    mse = nn.MSELoss()
    losses = []
    with watch(model) as dbg:
        for step in range(250):
            returns, level = series(32)
            optimizer.zero_grad()
            loss = mse(model(returns), level)
            loss.backward()
            if fixed:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            if not fixed:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.3
