"""A small transformer that generates tokens, with a cache and a symbolic position."""

import numpy as np
from tinygrad import Tensor, TinyJit, Variable, dtypes
from tinygrad.nn import Embedding, LayerNorm, Linear
from tinygrad.nn.state import get_state_dict

MAX_CONTEXT = 16
DIM, HEADS, VOCAB = 16, 2, 23


class Attention:
    def __init__(self):
        self.c_attn = Linear(DIM, 3 * DIM, bias=True)
        self.c_proj = Linear(DIM, DIM, bias=True)

    def __call__(self, x, start_pos, mask):
        xqkv = self.c_attn(x).reshape(None, None, 3, HEADS, DIM // HEADS)
        xq, xk, xv = [xqkv[:, :, i, :, :] for i in range(3)]
        bsz, seqlen, _, _ = xq.shape
        if not hasattr(self, "cache_kv"):
            self.cache_kv = Tensor.zeros(2, bsz, MAX_CONTEXT, HEADS, DIM // HEADS)
            self.cache_kv = self.cache_kv.contiguous().realize()
        place = (None, None, (start_pos, start_pos + seqlen), None, None)
        self.cache_kv.shrink(place).assign(Tensor.stack(xk, xv)).realize()
        if isinstance(start_pos, int) and start_pos == 0:
            keys, values = xk, xv
        else:
            keys = self.cache_kv[0].shrink((None, (0, start_pos + seqlen), None, None))
            values = self.cache_kv[1].shrink((None, (0, start_pos + seqlen), None, None))
        xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        out = xq.scaled_dot_product_attention(keys, values, mask).transpose(1, 2)
        return self.c_proj(out.reshape(bsz, seqlen, DIM))


class Block:
    def __init__(self):
        self.attn = Attention()
        self.c_fc, self.c_out = Linear(DIM, 4 * DIM), Linear(4 * DIM, DIM)
        self.ln_1, self.ln_2 = LayerNorm(DIM), LayerNorm(DIM)

    def __call__(self, x, start_pos, mask):
        h = x + self.attn(self.ln_1(x), start_pos, mask).float()
        return (h + self.c_out(self.c_fc(self.ln_2(h)).gelu())).contiguous()


class Transformer:
    def __init__(self):
        self.wte, self.wpe = Embedding(VOCAB, DIM), Embedding(MAX_CONTEXT, DIM)
        self.h = [Block() for _ in range(2)]
        self.ln_f = LayerNorm(DIM)
        self.lm_head = Linear(DIM, VOCAB, bias=False)
        self.forward_jit = TinyJit(self.forward)

    def forward(self, tokens, start_pos):
        if not hasattr(self, "allpos"):
            self.allpos = Tensor.arange(0, MAX_CONTEXT).reshape(1, -1).realize()
        seqlen = tokens.shape[1]
        pos = self.allpos.shrink((None, (start_pos, start_pos + seqlen)))
        h = self.wte(tokens) + self.wpe(pos)
        mask = None
        if seqlen > 1:
            mask = Tensor.full((1, 1, seqlen, seqlen), float("-inf"), dtype=h.dtype).triu(1)
        for layer in self.h:
            h = layer(h, start_pos, mask)
        logits = self.lm_head(self.ln_f(h))[:, -1, :]
        return logits.argmax(-1).flatten().realize()

    def __call__(self, tokens, start_pos):
        if tokens.shape[1] == 1 and not isinstance(start_pos, int):
            return self.forward_jit(tokens, start_pos)
        return self.forward(tokens, start_pos)


rng = np.random.default_rng(4)
model = Transformer()
for name, weight in sorted(get_state_dict(model).items()):
    if "ln_" in name:
        continue
    weight.assign(Tensor(rng.normal(0, 0.9, weight.shape).astype(np.float32))).realize()

tokens, start = [5, 1, 8], 0
while len(tokens) < MAX_CONTEXT:
    fed = Tensor([tokens[start:]], dtype=dtypes.int32)
    position = start
    if start and len(tokens) - start == 1:
        position = Variable("start_pos", 1, MAX_CONTEXT - 1).bind(start)
    found = model(fed, position).tolist()
    start = len(tokens)
    tokens.append(int(found[0]))
print("tokens", tokens)
print("cache", round(float(model.h[1].attn.cache_kv.square().mean().item()), 3))
