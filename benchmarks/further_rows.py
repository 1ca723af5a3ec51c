"""More rows of operators: padding, statistics, norms, gradients, transforms, systems, few bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from operator_rows import RNG, Row, alike, gradients, normal

from tilework import Tensor


def padding() -> list[Row]:
    """Pads, and other movement."""
    image, square, wide = normal(8, 64, 56, 56), normal(1, 1000, 1000), normal(4096, 1024)
    places = RNG.integers(0, 1000, 100_000)
    by = (2, 2, 2, 2)
    rows = [
        alike(f"pad {mode}", (image,), lambda f, x, mode=mode: f.pad(x, by, mode=mode))
        for mode in ("constant", "reflect", "replicate", "circular")
    ]
    return [
        *rows,
        alike("pad reflect 16", (square,), lambda f, x: f.pad(x, (16, 16, 16, 16), mode="reflect")),
        gradients("pad reflect, gradient", (image,), normal(8, 64, 60, 60),
                  lambda f, x: f.pad(x, by, mode="reflect")),
        Row("flip 0", (wide,), lambda x: x.flip(0)),
        Row("flip both", (wide,), lambda x: x.flip(0, 1), lambda x: x.flip((0, 1))),
        Row("roll 1", (wide,), lambda x: x.roll(7, 1)),
        Row("rot90", (wide,), lambda x: x.rot90().contiguous(), lambda x: x.rot90().contiguous()),
        Row("triu", (wide,), lambda x: x.triu()),
        Row("masked_fill", (wide, wide > 0), lambda x, m: x.masked_fill(m, 1.5)),
        Row("diag_embed", (normal(64, 128),), lambda x: x.diag_embed()),
        Row("index_put, accumulated", (normal(1000, 64), RNG.integers(0, 1000, 20000),
                                       normal(20000, 64)),
            lambda x, i, v: x.index_put((i,), v, accumulate=True)),
        Row("index_copy", (wide, RNG.permutation(4096), normal(4096, 1024)),
            lambda x, i, v: x.index_copy(0, i, v)),
        Row("index_add 1d", (normal(1000), places, normal(100_000)),
            lambda x, i, v: x.index_add(0, i, v)),
        Row("take", (wide, RNG.integers(0, 4096 * 1024, 1_000_000)), lambda x, i: x.take(i)),
        Row("x[i, j]", (normal(1000, 1000), RNG.integers(0, 1000, 500_000),
                        RNG.integers(0, 1000, 500_000)), lambda x, i, j: x[i, j]),
        Row("x[:, ::2]", (wide,), lambda x: x[:, ::2].contiguous()),
        Row("isin", (RNG.integers(0, 100_000, 100_000), RNG.integers(0, 100_000, 1000)),
            lambda a, b: a.isin(b), torch.isin),
        Row("bucketize", (normal(1_000_000), np.linspace(-3, 3, 64, dtype=np.float32)),
            lambda x, e: x.bucketize(e), torch.bucketize),
        Row("unique_consecutive", (np.sort(RNG.integers(0, 1000, 1_000_000)),),
            lambda x: x.unique_consecutive(), is_captured=False),
        Row("nonzero", (wide > 1,), lambda x: x.nonzero(), is_captured=False),
        Row("unfold (im2col) 5, stride 2", (image,), lambda x: x.im2col(5, 1, 2, 2),
            lambda x: torch.nn.functional.unfold(x, 5, 1, 2, 2)),
        alike("fold (col2im)", (normal(8, 64 * 9, 56 * 56),),
              lambda f, x: f.fold(x, (56, 56), 3, padding=1)),
        alike("pixel_unshuffle", (image,), lambda f, x: f.pixel_unshuffle(x, 2)),
        alike("channel_shuffle", (image,), lambda f, x: f.channel_shuffle(x, 8)),
        Row("kron", (normal(50, 50), normal(30, 30)), lambda a, b: a.kron(b), torch.kron),
        Row("meshgrid sum", (normal(2000), normal(1000)),
            lambda a, b: a.reshape(-1, 1) + b.reshape(1, -1)),
        Row("permute 0213", (normal(8, 128, 12, 64),),
            lambda x: x.permute(0, 2, 1, 3).contiguous()),
    ]  # fmt: skip


def statistics() -> list[Row]:
    """Statistics, orders and scans."""
    square, wide, vector = normal(1000, 1000), normal(4096, 1024), normal(1_000_000)
    return [
        Row("var_mean cols", (wide,), lambda x: x.var_mean(0), lambda x: torch.var_mean(x, 0)),
        Row("std rows", (wide,), lambda x: x.std(1)),
        Row("median cols", (square,), lambda x: x.median(0)[0]),
        Row("nanmean", (wide,), lambda x: x.nanmean(1)),
        Row("quantile all", (vector,), lambda x: x.quantile(0.9)),
        Row("kthvalue", (square,), lambda x: x.kthvalue(10, 1)[0]),
        Row("mode", (RNG.integers(0, 50, (1000, 1000)),), lambda x: x.mode(1)[0]),
        Row("aminmax", (wide,), lambda x: x.aminmax()),
        Row("cumprod cols", (square * 0.01 + 1,), lambda x: x.cumprod(0)),
        Row("cummax cols", (square,), lambda x: x.cummax(0)[0]),
        Row("cummin rows, places", (square,), lambda x: x.cummin(1)[1]),
        Row("logcumsumexp", (square,), lambda x: x.logcumsumexp(1)),
        Row("cumsum rows", (wide,), lambda x: x.cumsum(1)),
        Row("cumsum middle", (normal(64, 256, 64),), lambda x: x.cumsum(1)),
        Row("diff", (wide,), lambda x: x.diff(), lambda x: x.diff()),
        Row("cov", (normal(100, 10_000),), lambda x: x.cov(), torch.cov),
        Row("corrcoef", (normal(100, 10_000),), lambda x: x.corrcoef(), torch.corrcoef),
        Row("argsort 1M int32", (RNG.integers(0, 1 << 30, 1_000_000).astype("int32"),),
            lambda x: x.argsort(0), lambda x: x.argsort(dim=0, stable=True)),
        Row("argsort 1M int64, small", (RNG.integers(-200, 200, 1_000_000),),
            lambda x: x.argsort(0), lambda x: x.argsort(dim=0, stable=True)),
        Row("sort both 1M", (vector,), lambda x: tuple(x.sort(0)),
            lambda x: tuple(x.sort(dim=0, stable=True))),
        Row("topk 100 rows", (square,), lambda x: tuple(x.topk(100)), lambda x: tuple(x.topk(100))),
        Row("norm all", (wide,), lambda x: x.norm()),
        Row("norm p=1 cols", (wide,), lambda x: x.norm(1, 0), lambda x: x.norm(1, 0)),
        Row("prod rows", (wide * 0.01 + 1,), lambda x: x.prod(1)),
        Row("argmin middle", (normal(64, 256, 64),), lambda x: x.argmin(1)),
        Row("sum (0,1) of 3", (normal(64, 256, 64),), lambda x: x.sum((0, 1))),
        Row("sum middle", (normal(64, 256, 64),), lambda x: x.sum(1)),
        Row("any cols", (square > 3,), lambda x: x.any(0)),
        Row("trace of products", (normal(500, 500), normal(500, 500)),
            lambda a, b: (a * b.transpose(0, 1)).sum()),
    ]  # fmt: skip


def norms() -> list[Row]:
    """Norms in training, and gradients."""
    image, wide, by = normal(8, 64, 56, 56), normal(4096, 1024), normal(4096, 1024)
    weight, bias, gain = normal(64), normal(64), normal(1024)
    classes = RNG.integers(0, 1024, 4096)

    def batch(f: Any, x: Any, w: Any, b: Any) -> Any:
        return f.batch_norm(x, None, None, w, b, True)

    def losses(f: Any, x: Any) -> Any:
        i = torch.from_numpy(classes) if f is torch.nn.functional else Tensor(classes)
        return f.cross_entropy(x, i).reshape(1)

    small = normal(8, 64, 28, 28)
    return [
        alike("batch_norm, training", (image, weight, bias), batch),
        gradients("batch_norm, gradients", (image, weight, bias), normal(8, 64, 56, 56), batch),
        alike("instance_norm", (image,), lambda f, x: f.instance_norm(x)),
        alike("group_norm 32", (image, weight, bias),
              lambda f, x, w, b: f.group_norm(x, 32, w, b)),
        gradients("group_norm, gradients", (image, weight, bias), normal(8, 64, 56, 56),
                  lambda f, x, w, b: f.group_norm(x, 8, w, b)),
        gradients("layer_norm, gradients", (wide, gain, gain), by,
                  lambda f, x, w, b: f.layer_norm(x, (1024,), w, b)),
        gradients("rms_norm, gradients", (wide, gain), by,
                  lambda f, x, w: f.rms_norm(x, (1024,), w, 1e-5)),
        gradients("softmax, gradient", (wide,), by, lambda f, x: f.softmax(x, 1)),
        gradients("log_softmax, gradient", (wide,), by, lambda f, x: f.log_softmax(x, 1)),
        gradients("cross_entropy, gradient", (wide,), np.ones(1, np.float32), losses),
        gradients("gelu, gradient", (wide,), by, lambda f, x: f.gelu(x)),
        gradients("silu, gradient", (wide,), by, lambda f, x: f.silu(x)),
        gradients("linear, gradients", (normal(512, 768), normal(768, 768), normal(768)),
                  normal(512, 768), lambda f, x, w, b: f.linear(x, w, b)),
        alike("normalize", (wide,), lambda f, x: f.normalize(x, dim=1)),
        alike("local_response_norm", (small,), lambda f, x: f.local_response_norm(x, 5)),
        alike("cosine_similarity", (wide, by), lambda f, x, y: f.cosine_similarity(x, y, dim=1)),
        alike("smooth_l1_loss", (wide, by), lambda f, x, y: f.smooth_l1_loss(x, y)),
        alike("kl_div", (wide, np.abs(by) + 0.01),
              lambda f, x, y: f.kl_div(x, y, reduction="batchmean")),
        alike("bce with logits", (wide, np.abs(np.tanh(by))),
              lambda f, x, y: f.binary_cross_entropy_with_logits(x, y)),
        gradients("conv 3x3, gradients", (small, normal(64, 64, 3, 3)), normal(8, 64, 28, 28),
                  lambda f, x, w: f.conv2d(x, w, padding=1)),
        gradients("conv 3x3 stride 2, gradients", (small, normal(128, 64, 3, 3)),
                  normal(8, 128, 14, 14), lambda f, x, w: f.conv2d(x, w, stride=2, padding=1)),
        gradients("depthwise, gradients", (image, normal(64, 1, 3, 3)), normal(8, 64, 56, 56),
                  lambda f, x, w: f.conv2d(x, w, padding=1, groups=64)),
        gradients("conv1d, gradients", (normal(8, 64, 1000), normal(64, 64, 5)),
                  normal(8, 64, 1000), lambda f, x, w: f.conv1d(x, w, padding=2)),
        alike("conv3d", (normal(1, 16, 16, 32, 32), normal(32, 16, 3, 3, 3)),
              lambda f, x, w: f.conv3d(x, w, padding=1)),
        alike("conv grouped 4", (small, normal(64, 16, 3, 3)),
              lambda f, x, w: f.conv2d(x, w, padding=1, groups=4)),
        alike("conv dilated 2", (small, normal(64, 64, 3, 3)),
              lambda f, x, w: f.conv2d(x, w, padding=2, dilation=2)),
        gradients("max_pool 2, gradient", (image,), normal(8, 64, 28, 28),
                  lambda f, x: f.max_pool2d(x, 2)),
        gradients("max_pool 3s2, gradient", (image,), normal(8, 64, 28, 28),
                  lambda f, x: f.max_pool2d(x, 3, 2, 1)),
        gradients("avg_pool 2, gradient", (image,), normal(8, 64, 28, 28),
                  lambda f, x: f.avg_pool2d(x, 2)),
        alike("adaptive avg 7", (image,), lambda f, x: f.adaptive_avg_pool2d(x, 7)),
        alike("adaptive max 7", (image,), lambda f, x: f.adaptive_max_pool2d(x, 7)),
        alike("bicubic x2", (small,),
              lambda f, x: f.interpolate(x, scale_factor=2, mode="bicubic")),
        alike("bilinear down", (image,), lambda f, x: f.interpolate(
            x, size=(24, 24), mode="bilinear")),
        gradients("bilinear x2, gradient", (small,), normal(8, 64, 56, 56),
                  lambda f, x: f.interpolate(x, scale_factor=2, mode="bilinear")),
        gradients("nearest x2, gradient", (small,), normal(8, 64, 56, 56),
                  lambda f, x: f.interpolate(x, scale_factor=2, mode="nearest")),
        alike("grid_sample", (normal(4, 16, 128, 128), np.tanh(normal(4, 128, 128, 2))),
              lambda f, x, g: f.grid_sample(x, g, align_corners=False)),
        alike("embedding_bag", (normal(5000, 64), RNG.integers(0, 5000, (1000, 20))),
              lambda f, w, i: f.embedding_bag(i, w, mode="sum")),
        alike("attention 8 heads", (normal(2, 8, 256, 64), normal(2, 8, 256, 64),
                                    normal(2, 8, 256, 64)),
              lambda f, q, k, v: f.scaled_dot_product_attention(q, k, v)),
    ]  # fmt: skip


def _real(x: Any) -> Any:
    return torch.view_as_real(x)


def transforms() -> list[Row]:
    """Fourier transforms, and systems of equations."""
    many = normal(64, 32, 32)
    positive = many @ many.transpose(0, 2, 1) + 8 * np.eye(32, dtype=np.float32)
    large = normal(256, 256)
    large_positive = large @ large.T + 64 * np.eye(256, dtype=np.float32)
    right = normal(64, 32, 4)
    sizes = [(1024, 1024), (1000, 1000), (1000, 999), (1000, 1009), (1, 1 << 20)]
    rows = [
        Row(f"fft {rows} x {size}", (normal(rows, size),), lambda x: x.with_imaginary().fft(),
            lambda x: _real(torch.fft.fft(x)))
        for rows, size in sizes
    ]  # fmt: skip
    return [
        *rows,
        Row("rfft 1000 x 1024", (normal(1000, 1024),), lambda x: x.rfft(),
            lambda x: _real(torch.fft.rfft(x))),
        Row("irfft 1000 x 513", (normal(1000, 513, 2),), lambda x: x.irfft(),
            lambda x: torch.fft.irfft(torch.view_as_complex(x))),
        Row("fft2 512", (normal(512, 512),), lambda x: x.with_imaginary().fft2(),
            lambda x: _real(torch.fft.fft2(x))),
        Row("cholesky 64 x 32", (positive,), lambda x: x.cholesky()),
        Row("cholesky 256", (large_positive,), lambda x: x.cholesky()),
        Row("solve 64 x 32", (positive, right), lambda a, b: a.solve(b), torch.linalg.solve),
        Row("solve 256", (large_positive, normal(256, 8)), lambda a, b: a.solve(b),
            torch.linalg.solve),
        Row("inv 64 x 32", (positive,), lambda x: x.inv(), torch.linalg.inv),
        Row("inv 256", (large_positive,), lambda x: x.inv(), torch.linalg.inv),
        Row("det 64 x 32", (many * 0.3,), lambda x: x.det()),
        Row("slogdet 256", (large,), lambda x: x.slogdet()[1]),
        Row("triangular 64 x 32", (positive, right), lambda a, b: a.solve_triangular(
            b, upper=False), lambda a, b: torch.linalg.solve_triangular(a, b, upper=False)),
        Row("qr 64 x 32, R", (many,), lambda x: x.qr()[1].abs(), lambda x: x.qr()[1].abs()),
        Row("svdvals 16 x 16", (normal(16, 16, 16),), lambda x: x.svdvals(), torch.linalg.svdvals),
        Row("svd 16 x 32", (many[:16].copy(),), lambda x: x.svd()[1], lambda x: x.svd()[1]),
        Row("eigvalsh 16 x 16", (positive[:16, :16, :16].copy(),), lambda x: x.eigvalsh(),
            torch.linalg.eigvalsh),
        Row("matrix_exp 64 x 32", (many * 0.1,), lambda x: x.matrix_exp()),
        Row("bmm 1000 x 16", (normal(1000, 16, 16), normal(1000, 16, 16)), lambda a, b: a @ b),
        Row("matmul 1000 x 4", (normal(1000, 4, 4), normal(4, 4)), lambda a, b: a @ b),
        Row("row x matrix", (normal(1, 768), normal(768, 3072)), lambda a, b: a @ b),
        Row("matmul f64 256", (normal(256, 256).astype("f8"), normal(256, 256).astype("f8")),
            lambda a, b: a @ b),
        Row("matmul int32 256", (RNG.integers(0, 100, (256, 256)).astype("int32"),
                                 RNG.integers(0, 100, (256, 256)).astype("int32")),
            lambda a, b: a @ b),
    ]  # fmt: skip


def functions_of_one() -> list[Row]:
    """Elementary functions that the first hundred rows have not."""
    wide, square = normal(4096, 1024), normal(1000, 1000)
    positive = np.abs(square) + 0.01
    doubles = square.astype("f8")
    names = (
        "tanh", "expm1", "sinh", "cosh", "atan", "asinh", "floor", "round", "sign", "rsqrt",
        "reciprocal", "isnan", "sin", "cos", "log1p", "erfinv", "frac", "nan_to_num",
    )  # fmt: skip
    rows = []
    for name in names:
        x = np.tanh(np.abs(wide)) if name in ("log1p", "erfinv", "rsqrt") else wide
        rows.append(Row(name, (x,), lambda x, name=name: getattr(x, name)()))
    for name in ("log", "tanh", "cos", "log1p", "erf", "atan", "sqrt", "exp2", "sinh", "tan"):
        x = np.abs(doubles) + 0.01 if name in ("log", "sqrt") else np.abs(doubles)
        rows.append(Row(f"{name} f64", (x,), lambda x, name=name: getattr(x, name)()))
    rows += [
        alike(name, (wide,), lambda f, x, name=name: getattr(f, name)(x))
        for name in ("mish", "hardswish", "softplus", "elu", "leaky_relu", "gelu", "logsigmoid")
    ]
    integers = RNG.integers(1, 1000, (1000, 1000))
    return [
        *rows,
        Row("lgamma", (positive,), lambda x: x.lgamma()),
        Row("digamma", (positive,), lambda x: x.digamma()),
        Row("i0", (positive,), lambda x: x.i0()),
        Row("fmod", (square, positive), lambda a, b: a.fmod(b)),
        Row("remainder", (square, positive), lambda a, b: a.remainder(b)),
        Row("hypot", (square, positive), lambda a, b: a.hypot(b)),
        Row("logaddexp", (square, positive), lambda a, b: a.logaddexp(b)),
        Row("pow f64", (np.abs(doubles) + 0.01,), lambda x: x**1.7),
        Row("pow 3", (wide,), lambda x: x**3),
        Row("lerp", (wide, normal(4096, 1024)), lambda a, b: a.lerp(b, 0.3)),
        Row("addcmul", (wide, normal(4096, 1024)), lambda a, b: a.addcmul(a, b, value=0.5)),
        Row("gcd int64", (integers, integers.T.copy()), lambda a, b: a.gcd(b)),
        Row("int64 div", (integers * 7, integers.T.copy()), lambda a, b: a // b),
        Row("bitwise", (integers, integers.T.copy()), lambda a, b: (a & b) ^ (a | 5)),
        Row("int64 mul", (integers, integers.T.copy()), lambda a, b: a * b),
        Row("int to float", (integers,), lambda x: x.float()),
        Row("float to int64", (wide,), lambda x: x.long()),
        Row("f64 to f32", (doubles,), lambda x: x.float()),
    ]


def few_bits() -> list[Row]:
    """What there is in 16 and 8 bits."""
    square, image = normal(512, 512), normal(4, 64, 28, 28)
    rows = []
    for kind in ("bfloat16", "float16"):
        rows += [
            Row(f"matmul {kind}", (square, square), lambda a, b: a @ b, kind=kind),
            alike(f"conv {kind}", (image, normal(64, 64, 3, 3)),
                  lambda f, x, w: f.conv2d(x, w, padding=1), kind),
            Row(f"cumsum {kind}", (square * 0.01,), lambda x: x.cumsum(1), kind=kind),
            Row(f"exp {kind}", (square,), lambda x: x.exp(), kind=kind),
            Row(f"amax {kind}", (square,), lambda x: x.amax(1), kind=kind),
            Row(f"argmax {kind}", (square,), lambda x: x.argmax(1), kind=kind),
            Row(f"sort {kind}", (square,), lambda x: x.sort(1)[0], kind=kind),
            Row(f"transpose {kind}", (normal(2048, 1024),),
                lambda x: x.transpose(0, 1).contiguous(), kind=kind),
            alike(f"max_pool {kind}", (image,), lambda f, x: f.max_pool2d(x, 2), kind),
            alike(f"attention {kind}", (normal(2, 8, 128, 64),) * 3,
                  lambda f, q, k, v: f.scaled_dot_product_attention(q, k, v), kind),
        ]  # fmt: skip
    bytes_ = RNG.integers(0, 256, (8, 224, 224, 3)).astype("uint8")
    signed = RNG.integers(-100, 100, (4096, 1024)).astype("int8")
    return [
        *rows,
        Row("uint8 flip", (bytes_,), lambda x: x.flip(2), lambda x: x.flip((2,))),
        Row("uint8 crop, NCHW", (bytes_,),
            lambda x: x[:, 16:208, 16:208].permute(0, 3, 1, 2).contiguous()),
        Row("uint8 pad", (bytes_,), lambda x: x.pad((0, 0, 4, 4, 4, 4)),
            lambda x: torch.nn.functional.pad(x, (0, 0, 4, 4, 4, 4))),
        Row("uint8 mean", (bytes_,), lambda x: x.float().mean((1, 2))),
        Row("uint8 grey", (bytes_,),
            lambda x: (x.float() * 0.33).sum(-1).round().clamp(0, 255).byte()),
        Row("uint8 threshold", (bytes_,), lambda x: (x > 127).byte() * 255),
        Row("uint8 LUT", (bytes_, RNG.integers(0, 256, 256).astype("uint8")),
            lambda x, t: t[x.int()]),
        Row("int8 sum rows", (signed,), lambda x: x.sum(1)),
        Row("int8 max cols", (signed,), lambda x: x.amax(0)),
        Row("int8 abs", (signed,), lambda x: x.abs()),
        Row("bool and or", (signed > 0, signed > 50), lambda a, b: (a & ~b) | (b ^ a)),
        Row("one row, int8 weights", (normal(1, 768), RNG.integers(-127, 127, (3072, 768)).astype(
            "int8"), np.abs(normal(3072)) * 0.01),
            lambda x, w, s: (x @ w.float().transpose(0, 1)) * s),
    ]  # fmt: skip


def further() -> list[Row]:
    """All of them."""
    groups = (padding, statistics, norms, transforms, functions_of_one, few_bits)
    return [row for group in groups for row in group()]


__all__ = ["further"]
