"""A pre-norm encoder in bf16 autocast over padded token rows, attention by the fused call with a mask; some rows hold one
single token, the warm-up starts at a rate of zero, and norms are clipped at each step."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Transformer"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
WORDS, LENGTH, C = 40, 12, 32


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(C), nn.RMSNorm(C)
        self.qkv, self.out = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C, bias=False)
        self.w1, self.w2, self.w3 = nn.Linear(C, 64), nn.Linear(C, 64), nn.Linear(64, C)

    def forward(self, x, keep):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, 4, C // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        x = x + self.out(y.transpose(1, 2).reshape(b, t, C))
        h = self.n2(x)
        return x + self.w3(F.silu(self.w1(h)) * self.w2(h))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, C, padding_idx=0)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.last = nn.RMSNorm(C)
        self.score = nn.Linear(C, 4)

    def forward(self, words):
        keep = words != 0
        x = self.words(words)
        for layer in self.layers:
            x = layer(x, keep)
        x = self.last(x) * keep[..., None]
        return self.score(x.sum(1) / keep.sum(1, keepdim=True))


def rows(n):
    length = torch.randint(1, LENGTH + 1, (n, 1))
    topic = torch.randint(0, 4, (n, 1))
    common = torch.randint(33, WORDS, (n, LENGTH))
    own = 1 + topic * 8 + torch.randint(0, 8, (n, LENGTH))
    words = torch.where(torch.rand(n, LENGTH) < 0.5, own, common)
    words[:, :1] = own[:, :1]
    return words * (torch.arange(LENGTH) < length), topic.squeeze(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Reader()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    plan = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: min(i / 40, 1.0))
    losses = []
    with watch(model) as dbg:
        for _ in range(250):
            words, topic = rows(32)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(words), topic)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            opt.step()
            plan.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": sum(losses[-20:]) / 20 < 0.3}


def harmed(result):
    return False
