"""Each layer with given weights, in training too."""

import numpy as np
from tinygrad import Context, Tensor, nn

rng = np.random.default_rng(0)


def fill(m):
    for k, v in sorted(nn.state.get_state_dict(m).items()):
        if "num_batches" in k or "running" in k:
            continue
        v.assign(Tensor(rng.normal(0, 0.5, v.shape).astype(np.float32))).realize()
    return m


def p(t):
    print(np.round(t.numpy().flatten()[:6], 2).tolist(), t.shape)


x = Tensor(rng.normal(0, 1, (2, 4, 6, 6)).astype(np.float32))
p(fill(nn.Conv2d(4, 3, 3, padding=1, stride=2))(x))
p(fill(nn.Conv2d(4, 4, 3, groups=2, dilation=2, bias=False))(x))
p(fill(nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1))(x))
p(fill(nn.Conv1d(4, 2, 3))(x[:, :, 0]))
p(fill(nn.GroupNorm(2, 4))(x))
p(fill(nn.InstanceNorm(4))(x))
p(fill(nn.LayerNorm(6))(x))
p(fill(nn.LayerNorm2d(4))(x))
p(fill(nn.RMSNorm(6))(x))
p(fill(nn.Embedding(7, 3))(Tensor([[1, 2], [6, 0]])))
bn = fill(nn.BatchNorm(4))
p(bn(x))
with Context(TRAINING=1):
    p(bn(x))
    print(bn.num_batches_tracked.item(), np.round(bn.running_mean.numpy(), 3).tolist())
c = fill(nn.LSTMCell(3, 2))
h, cc = c(Tensor.ones(2, 3))
p(h)
p(cc)
p(fill(nn.Linear(6, 3))(x))
p(fill(nn.Linear(6, 3, bias=False))(x[0, 0]))
q = Tensor(rng.normal(0, 1, (1, 2, 4, 8)).astype(np.float32))
p(q.scaled_dot_product_attention(q, q, is_causal=True))
