"""Rotary positions, grouped heads and a cache of keys, as in LLaMA examples."""

import numpy as np
from tinygrad import Tensor, TinyJit, Variable, nn


def precompute_freqs_cis(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (Tensor.arange(0, dim, 2)[: (dim // 2)] / dim))
    freqs = Tensor.arange(end).unsqueeze(dim=1) * freqs.unsqueeze(dim=0)
    return Tensor.stack(freqs.cos(), freqs.sin(), dim=-1).reshape(1, end, 1, dim // 2, 2)


def complex_mult(A, c, d):
    a, b = A[..., 0:1], A[..., 1:2]
    return (a * c - b * d).cat(a * d + b * c, dim=-1)


def rope(xq, xk, f):
    xq = xq.reshape(*xq.shape[0:-1], -1, 2)
    xk = xk.reshape(*xk.shape[0:-1], -1, 2)
    c, d = f[..., 0:1], f[..., 1:2]
    return complex_mult(xq, c, d).flatten(3), complex_mult(xk, c, d).flatten(3)


def repeat_kv(x, n):
    bs, s, h, d = x.shape
    return x if n == 1 else x.repeat((1, 1, 1, n)).reshape(bs, s, h * n, d)


rng = np.random.default_rng(0)
D, H, KV = 16, 4, 2


class A:
    def __init__(s):
        s.wq = nn.Linear(D, D, bias=False)
        s.wk = nn.Linear(D, D // 2, bias=False)
        s.wv = nn.Linear(D, D // 2, bias=False)
        s.wo = nn.Linear(D, D, bias=False)

    def __call__(s, x, sp, fc, mask):
        q, k, v = s.wq(x), s.wk(x), s.wv(x)
        q = q.reshape(q.shape[0], q.shape[1], H, D // H)
        k = k.reshape(k.shape[0], k.shape[1], KV, D // H)
        v = v.reshape(v.shape[0], v.shape[1], KV, D // H)
        q, k = rope(q, k, fc)
        b, sl, _, _ = q.shape
        if not hasattr(s, "cache"):
            s.cache = Tensor.zeros(2, b, 16, KV, D // H, dtype=x.dtype).contiguous().realize()
        s.cache.shrink((None, None, (sp, sp + sl), None, None)).assign(Tensor.stack(k, v)).realize()
        ks = s.cache[0].shrink((None, (0, sp + sl), None, None))
        vs = s.cache[1].shrink((None, (0, sp + sl), None, None))
        ks, vs = repeat_kv(ks, H // KV), repeat_kv(vs, H // KV)
        q, ks, vs = q.transpose(1, 2), ks.transpose(1, 2), vs.transpose(1, 2)
        return s.wo(q.scaled_dot_product_attention(ks, vs, mask).transpose(1, 2).reshape(b, sl, -1))


a = A()
for _, w in sorted(nn.state.get_state_dict(a).items()):
    w.assign(Tensor(rng.normal(0, 0.4, w.shape).astype(np.float32))).realize()
fc = precompute_freqs_cis(D // H, 16).contiguous().realize()
xs = rng.normal(0, 1, (1, 6, D)).astype(np.float32)
mask = Tensor.full((1, 1, 3, 3), float("-inf")).triu(1)
print(
    np.round(
        a(Tensor(xs[:, :3]), 0, fc.shrink((None, (0, 3), None, None, None)), mask).numpy()[
            0, -1, :4
        ],
        3,
    ).tolist()
)
j = TinyJit(
    lambda x, sp: a(x, sp, fc.shrink((None, (sp, sp + 1), None, None, None)), None).realize()
)
for i in range(3, 6):
    print(
        np.round(
            j(Tensor(xs[:, i : i + 1]).realize(), Variable("sp", 1, 15).bind(i)).numpy()[0, 0, :4],
            3,
        ).tolist()
    )
