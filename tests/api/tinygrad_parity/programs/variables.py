"""Generation with tokens and positions as variables, in the dress of a GPT-2 example."""

import numpy as np
from tinygrad import GlobalCounters, Tensor, TinyJit, UOp, Variable
from tinygrad.helpers import DEBUG, JIT, Timing, trange
from tinygrad.nn import Embedding, LayerNorm, Linear
from tinygrad.nn.state import get_state_dict

MAXC, DIM, V = 12, 8, 17


class Attn:
    def __init__(self):
        self.qkv, self.o = Linear(DIM, 3 * DIM), Linear(DIM, DIM)

    def __call__(self, x, start_pos, mask):
        if mask is not None or start_pos.unbind()[1] == 0:
            start_pos = 0
        xqkv = self.qkv(x).reshape(None, None, 3, 2, DIM // 2)
        xq, xk, xv = [xqkv[:, :, i] for i in range(3)]
        bsz, seqlen = xq.shape[0], xq.shape[1]
        if not hasattr(self, "cache_kv"):
            self.cache_kv = Tensor.zeros(2, bsz, MAXC, 2, DIM // 2).contiguous().realize()
        self.cache_kv[:, :, start_pos : start_pos + seqlen, :, :].assign(
            Tensor.stack(xk, xv)
        ).realize()
        keys, values = (
            self.cache_kv[0][:, : start_pos + seqlen],
            self.cache_kv[1][:, : start_pos + seqlen],
        )
        xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        return self.o(
            xq.scaled_dot_product_attention(keys, values, mask)
            .transpose(1, 2)
            .reshape(bsz, seqlen, DIM)
        )


class Model:
    def __init__(self):
        self.wte, self.wpe, self.ln, self.attn, self.head = (
            Embedding(V, DIM),
            Embedding(MAXC, DIM),
            LayerNorm(DIM),
            Attn(),
            Linear(DIM, V, bias=False),
        )
        self.forward_jit = TinyJit(self.forward)

    def forward(self, tokens, start_pos, temperature=0.0):
        if isinstance(tokens, UOp):
            seqlen = 1
            tok_emb = self.wte.weight.shrink(((tokens, tokens + 1), None)).unsqueeze(0)
        else:
            seqlen = tokens.shape[1]
            tok_emb = self.wte(tokens)
        if not hasattr(self, "allpos"):
            self.allpos = Tensor.arange(0, MAXC).reshape(1, -1).realize()
        pos_emb = self.wpe(self.allpos.shrink((None, (start_pos, start_pos + seqlen))))
        h = tok_emb + pos_emb
        mask = (
            Tensor.full(
                (1, 1, seqlen, start_pos.unbind()[1] + seqlen), float("-inf"), dtype=h.dtype
            ).triu(start_pos.unbind()[1] + 1)
            if seqlen > 1
            else None
        )
        h = h + self.attn(self.ln(h), start_pos, mask)
        logits = self.head(h)[:, -1, :]
        if temperature < 1e-6:
            ret = logits.argmax(-1)
        else:
            ret = (logits / temperature).softmax().multinomial()
        return ret.flatten().realize()

    def __call__(self, tokens, start_pos, temperature=0.0):
        forward = (
            self.forward_jit
            if JIT and (isinstance(tokens, UOp) or tokens.shape[1] == 1)
            else self.forward
        )
        return forward(tokens, start_pos, temperature)


rng = np.random.default_rng(5)
m = Model()
for k, w in sorted(get_state_dict(m).items()):
    if "ln" not in k:
        w.assign(Tensor(rng.normal(0, 0.9, w.shape).astype(np.float32))).realize()
toks, start_pos = [3, 9], 0
for i in trange(MAXC - 2, disable=True):
    GlobalCounters.reset()
    with Timing("x", enabled=DEBUG > 3):
        if i > 0 and len(toks) - start_pos == 1:
            tokens = Variable("tokens", 0, V - 1).bind(toks[start_pos])
        else:
            tokens = Tensor([toks[start_pos:]])
        tok = m(
            tokens, Variable("start_pos", 1 if start_pos else 0, MAXC - 1).bind(start_pos)
        ).tolist()
    start_pos = len(toks)
    toks.append(int(tok[0]))
print(toks)
