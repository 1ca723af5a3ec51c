"""A block of a diffusion model: time embedding, residual blocks, attention, sampling steps."""

import math

import numpy as np
from tinygrad import Tensor, TinyJit, dtypes, nn
from tinygrad.nn.state import get_parameters, get_state_dict, load_state_dict

rng = np.random.default_rng(0)


def timestep_embedding(timesteps, dim, max_period=10000):
    half = dim // 2
    freqs = (-math.log(max_period) * Tensor.arange(half) / half).exp()
    args = timesteps.unsqueeze(1) * freqs.unsqueeze(0)
    return Tensor.cat(args.cos(), args.sin(), dim=-1)


class ResBlock:
    def __init__(self, channels, emb_channels, out_channels):
        self.in_layers = [
            nn.GroupNorm(4, channels),
            Tensor.silu,
            nn.Conv2d(channels, out_channels, 3, padding=1),
        ]
        self.emb_layers = [Tensor.silu, nn.Linear(emb_channels, out_channels)]
        self.out_layers = [
            nn.GroupNorm(4, out_channels),
            Tensor.silu,
            lambda x: x,
            nn.Conv2d(out_channels, out_channels, 3, padding=1),
        ]
        self.skip_connection = (
            nn.Conv2d(channels, out_channels, 1) if channels != out_channels else (lambda x: x)
        )

    def __call__(self, x, emb):
        h = x.sequential(self.in_layers)
        emb_out = emb.sequential(self.emb_layers)
        h = h + emb_out.reshape(*emb_out.shape, 1, 1)
        h = h.sequential(self.out_layers)
        return self.skip_connection(x) + h


class CrossAttention:
    def __init__(self, query_dim, context_dim, n_heads, d_head):
        self.to_q = nn.Linear(query_dim, n_heads * d_head, bias=False)
        self.to_k = nn.Linear(context_dim, n_heads * d_head, bias=False)
        self.to_v = nn.Linear(context_dim, n_heads * d_head, bias=False)
        self.num_heads, self.head_size = n_heads, d_head
        self.to_out = [nn.Linear(n_heads * d_head, query_dim)]

    def __call__(self, x, context=None):
        context = x if context is None else context
        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)
        q, k, v = [
            y.reshape(x.shape[0], -1, self.num_heads, self.head_size).transpose(1, 2)
            for y in (q, k, v)
        ]
        attention = Tensor.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return attention.reshape(x.shape[0], -1, self.num_heads * self.head_size).sequential(
            self.to_out
        )


class UNet:
    def __init__(self):
        self.time_embed = [nn.Linear(16, 32), Tensor.silu, nn.Linear(32, 32)]
        self.conv_in = nn.Conv2d(3, 8, 3, padding=1)
        self.down = ResBlock(8, 32, 16)
        self.downsample = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.attn = CrossAttention(16, 12, 2, 8)
        self.up = ResBlock(32, 32, 8)
        self.out = [nn.GroupNorm(4, 8), Tensor.silu, nn.Conv2d(8, 3, 3, padding=1)]

    def __call__(self, x, t, context):
        emb = timestep_embedding(t, 16).sequential(self.time_embed)
        x = self.conv_in(x)
        saved = self.down(x, emb)
        x = self.downsample(saved)
        b, c, h, w = x.shape
        x = x + self.attn(x.reshape(b, c, h * w).permute(0, 2, 1), context).permute(
            0, 2, 1
        ).reshape(b, c, h, w)
        x = x.reshape(b, c, h, 1, w, 1).expand(b, c, h, 2, w, 2).reshape(b, c, h * 2, w * 2)
        x = x.cat(saved, dim=1)
        return self.up(x, emb).sequential(self.out)


model = UNet()
state = {
    k: Tensor(rng.standard_normal(v.shape).astype(np.float32) * 0.2)
    for k, v in get_state_dict(model).items()
}
load_state_dict(model, state, verbose=False)
print(len(state), sorted(state)[:4], sum(p.numel() for p in get_parameters(model)))
context = Tensor(rng.standard_normal((1, 5, 12)).astype(np.float32))
alphas = np.cumprod(1 - np.linspace(0.01, 0.3, 8)).astype(np.float32)


@TinyJit
def step(x, t, a_t, a_prev):
    e_t = model(x, t, context)
    pred_x0 = (x - (1 - a_t).sqrt() * e_t) / a_t.sqrt()
    return (a_prev.sqrt() * pred_x0 + (1 - a_prev).sqrt() * e_t).realize()


x = Tensor(rng.standard_normal((1, 3, 8, 8)).astype(np.float32))
for i in range(7, 0, -1):
    x = (
        step(
            x,
            Tensor([float(i)]).realize(),
            Tensor(alphas[i : i + 1]).realize(),
            Tensor(alphas[i - 1 : i]).realize(),
        )
        .clone()
        .realize()
    )
    print(i, ["%.4f" % v for v in x.flatten()[:4].tolist()], "%.4f" % x.std().item())
img = ((x.clip(-1, 1) + 1) / 2 * 255).cast(dtypes.uint8)
print(img.shape, img.dtype, img.flatten()[:8].tolist())
