"""A selective state space model: causal convolution, scan, step by step and at once."""

import numpy as np
from tinygrad import Context, Tensor, nn
from tinygrad.helpers import getenv, prod

rng = np.random.default_rng(1)
D, N, K, R = 8, 4, 3, 2


def w(*shape):
    return Tensor(rng.standard_normal(shape).astype(np.float32) * 0.3)


class Block:
    def __init__(self):
        self.in_proj, self.conv_w, self.conv_b = w(2 * D, D), w(D, 1, K), w(D)
        self.x_proj, self.dt_w, self.dt_b = w(R + 2 * N, D), w(D, R), w(D)
        self.A_log = Tensor.arange(1, N + 1).reshape(1, N).expand(D, N).log().contiguous()
        self.D, self.out_proj = Tensor.ones(D), w(D, D)
        self.norm = nn.RMSNorm(D)

    def __call__(self, x):
        b, length, _ = x.shape
        skip = x
        xz = self.norm(x).linear(self.in_proj.T)
        x, z = xz.chunk(2, dim=-1)
        x = (
            x.transpose(1, 2)
            .pad(((0, 0), (0, 0), (K - 1, 0)))
            .conv2d(self.conv_w, self.conv_b, groups=D)
            .silu()
            .transpose(1, 2)
        )
        dt, B, C = x.linear(self.x_proj.T).split([R, N, N], dim=-1)
        delta = dt.linear(self.dt_w.T, self.dt_b).softplus()
        A = -self.A_log.exp()
        dA = (delta.unsqueeze(-1) * A).exp()
        dBx = delta.unsqueeze(-1) * B.unsqueeze(2) * x.unsqueeze(-1)
        h, ys = Tensor.zeros(b, D, N), []
        for i in range(length):
            h = dA[:, i] * h + dBx[:, i]
            ys.append((h * C[:, i].unsqueeze(1)).sum(-1))
        y = Tensor.stack(*ys, dim=1) + x * self.D
        return (y * z.silu()).linear(self.out_proj.T) + skip


blocks = [Block() for _ in range(1)]
emb, tokens = w(17, D), [3, 1, 4]


def logits(tokens):
    x = emb[Tensor([tokens])]
    return x.sequential(blocks).linear(emb.T)


for _ in range(2):
    out = logits(tokens)
    tokens.append(int(out[0, -1].argmax().item()))
    print(tokens[-1], "%.4f" % out[0, -1].max().item(), "%.4f" % out.logsumexp().item())
with Context(DEBUG=0):
    loss = logits(tokens[:-1]).sparse_categorical_crossentropy(Tensor([tokens[1:]]))
    grads = loss.gradient(blocks[0].in_proj, blocks[0].D, emb)
print("%.4f" % loss.item(), [["%.5f" % v for v in g.flatten()[:3].tolist()] for g in grads])
print(prod((2, 3, 4)), getenv("NOT_SET", 7))
