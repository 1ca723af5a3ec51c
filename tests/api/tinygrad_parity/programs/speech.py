"""A small speech model: spectrogram, convolutions, encoder, decoder with cross attention."""

import numpy as np
from tinygrad import Tensor, nn
from tinygrad.nn.state import get_state_dict

rng = np.random.default_rng(2)
DIM, HEADS, MELS, VOCAB, CTX = 16, 2, 8, 11, 12


class MultiHeadAttention:
    def __init__(self, n_state, n_head):
        self.n_head = n_head
        self.query, self.key, self.value = (
            nn.Linear(n_state, n_state),
            nn.Linear(n_state, n_state, bias=False),
            nn.Linear(n_state, n_state),
        )
        self.out = nn.Linear(n_state, n_state)

    def __call__(self, x, xa=None, mask=None):
        q, k, v = (
            self.query(x),
            self.key(x if xa is None else xa),
            self.value(x if xa is None else xa),
        )
        n, _, _d = q.shape
        q, k, v = (t.reshape(n, t.shape[1], self.n_head, -1).transpose(1, 2) for t in (q, k, v))
        m = None if mask is None else mask[: q.shape[2], : q.shape[2]]
        wv = q.scaled_dot_product_attention(k, v, attn_mask=m)
        return self.out(wv.transpose(1, 2).flatten(2))


class Block:
    def __init__(self, cross=False):
        self.attn, self.attn_ln = MultiHeadAttention(DIM, HEADS), nn.LayerNorm(DIM)
        self.cross_attn = MultiHeadAttention(DIM, HEADS) if cross else None
        self.cross_attn_ln = nn.LayerNorm(DIM) if cross else None
        self.mlp, self.mlp_ln = (
            [nn.Linear(DIM, DIM * 4), Tensor.gelu, nn.Linear(DIM * 4, DIM)],
            nn.LayerNorm(DIM),
        )

    def __call__(self, x, xa=None, mask=None):
        x = x + self.attn(self.attn_ln(x), mask=mask)
        if self.cross_attn:
            x = x + self.cross_attn(self.cross_attn_ln(x), xa)
        return x + self.mlp_ln(x).sequential(self.mlp)


class Encoder:
    def __init__(self):
        self.conv1, self.conv2 = (
            nn.Conv1d(MELS, DIM, 3, padding=1),
            nn.Conv1d(DIM, DIM, 3, stride=2, padding=1),
        )
        self.blocks, self.ln_post = [Block()], nn.LayerNorm(DIM)
        self.positional_embedding = Tensor.empty(10, DIM)

    def __call__(self, x):
        x = self.conv1(x).gelu()
        x = self.conv2(x).gelu().permute(0, 2, 1)
        x = x + self.positional_embedding[: x.shape[1]]
        return self.ln_post(x.sequential(self.blocks))


class Decoder:
    def __init__(self):
        self.token_embedding = nn.Embedding(VOCAB, DIM)
        self.positional_embedding = Tensor.empty(CTX, DIM)
        self.blocks, self.ln = [Block(True), Block(True)], nn.LayerNorm(DIM)
        self.mask = Tensor.full((CTX, CTX), -np.inf).triu(1).realize()

    def __call__(self, x, xa):
        x = self.token_embedding(x) + self.positional_embedding[: x.shape[1]]
        for block in self.blocks:
            x = block(x, xa=xa, mask=self.mask)
        return (self.ln(x) @ self.token_embedding.weight.T).realize()


encoder, decoder = Encoder(), Decoder()
for part in (encoder, decoder):
    for name, t in sorted(get_state_dict(part).items()):
        if "mask" not in name:
            t.assign(Tensor(rng.standard_normal(t.shape).astype(np.float32) * 0.4)).realize()

audio = np.sin(np.arange(400) * 0.1).astype(np.float32) * np.hanning(400).astype(np.float32)
frames = Tensor(audio).reshape(20, 20).pad(((0, 0), (0, 12)))
window = Tensor(np.hanning(32).astype(np.float32))
basis = Tensor(
    np.stack(
        [
            np.cos(2 * np.pi * np.outer(np.arange(32), np.arange(MELS)) / 32),
            np.sin(2 * np.pi * np.outer(np.arange(32), np.arange(MELS)) / 32),
        ]
    ).astype(np.float32)
)
power = ((frames * window) @ basis).square().sum(0)
mel = power.maximum(1e-10).log2() * float(np.log10(2))
mel = ((mel.maximum(mel.max() - 8.0) + 4.0) / 4.0).transpose(0, 1).unsqueeze(0)
print(mel.shape, "%.4f" % mel.mean().item())
encoded = encoder(mel).realize()
print(encoded.shape, ["%.4f" % v for v in encoded[0, 0, :4].tolist()])
tokens = [1]
while len(tokens) < CTX:
    logits = decoder(Tensor([tokens]), encoded)[0, -1]
    tokens.append(int(logits.argmax().item()))
    print(tokens[-1], "%.4f" % logits.log_softmax().max().item(), end=" ")
print()
