"""Normalisation of ONNX Runtime's own domain, with the sums and the look-ups before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework import dtypes
from tilework.base.errors import ModelFileError
from tilework.frontends.onnx.call import split_of
from tilework.frontends.onnx.ops.norm import normalized, wide_of
from tilework.frontends.onnx.ops.quantise import dequantised
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import filled
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.frontends.onnx.call import Call

MICROSOFT = "com.microsoft"


# --- over the last axis --------------------------------------------------------------------------


def _total(x: Tensor, skip: Tensor, bias: Tensor | None) -> Tensor:
    return x + skip if bias is None else x + skip + bias


@onnx_op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    call: Call,
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    shift: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    total = _total(x, skip, bias)
    wide = total.cast(wide_of(x.dtype))
    y, mean, inverse = normalized(wide, (x.ndim - 1,), call.number("epsilon", 1e-12))
    y = y.cast(x.dtype) * scale
    return y if shift is None else y + shift, mean, inverse, total


@onnx_op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    call: Call, x: Tensor, skip: Tensor, scale: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    total = _total(x, skip, bias)
    y, inverse = _by_its_size(total, (x.ndim - 1,), call.number("epsilon", 1e-12))
    return y * scale, total.mean(-1, keepdim=True), inverse, total


@onnx_op("SimplifiedLayerNormalization")
def simplified_layer_normalization(call: Call, x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    call.integer("stash_type", 1)
    axes = tuple(range(split_of(call, x.ndim, -1), x.ndim))
    y, inverse = _by_its_size(x, axes, call.number("epsilon", 1e-5))
    return y * scale, inverse


def _by_its_size(x: Tensor, axes: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor]:
    """x / sqrt(mean of squares + epsilon), and what it is multiplied by."""
    wide = x.cast(wide_of(x.dtype))
    inverse = 1 / ((wide * wide).mean(tuple(axes), keepdim=True) + epsilon).sqrt()
    return (wide * inverse).cast(x.dtype), inverse


# --- of embeddings -------------------------------------------------------------------------------


@onnx_op("EmbedLayerNormalization", domain=MICROSOFT, least=7, optional=(1, 4))
def embed_layer_normalization(call: Call, *operands: Tensor | None) -> tuple[Tensor, ...]:
    """Looks up words, places and segments, and normalises their sum; counts tokens of the mask."""
    words, segments, *rest = operands
    by_word, by_place, by_segment, scale, shift, mask, places = filled(rest, 7)
    call.integer("mask_index_type", 0)
    return _embedded(
        call, (words, segments, places), (by_word, by_place, by_segment), (scale, shift), mask
    )


@onnx_op("QEmbedLayerNormalization", domain=MICROSOFT, least=18, optional=(1, 4, 7, 10, 15))
def quantised_embed_layer_normalization(call: Call, *operands: Tensor | None) -> tuple[Tensor, ...]:
    """The same with tables of bytes: their scales and zero points follow."""
    words, segments, *rest = operands
    tables, mask, scales, points = rest[:5], rest[5], rest[6:11], rest[11:16]
    by_word, by_place, by_segment, scale, shift = (
        None if table is None or factor is None else dequantised(table, factor, point)
        for table, factor, point in zip(tables, scales, points, strict=True)
    )
    found = (by_word, by_place, by_segment)
    return _embedded(call, (words, segments, None), found, (scale, shift), mask)


def _embedded(
    call: Call,
    indices: tuple[Tensor | None, Tensor | None, Tensor | None],
    tables: tuple[Tensor | None, Tensor | None, Tensor | None],
    factors: tuple[Tensor | None, Tensor | None],
    mask: Tensor | None,
) -> tuple[Tensor, ...]:
    (words, segments, places), (by_word, by_place, by_segment) = indices, tables
    scale, shift = factors
    if words is None or by_word is None or by_place is None or scale is None or shift is None:
        raise ModelFileError(f"onnx: {call.node} lacks an input")
    batch, tokens = words.shape
    total = by_word[words] + (by_place[:tokens] if places is None else by_place[places])
    if segments is not None and by_segment is not None:
        total = total + by_segment[segments]
    wide = total.cast(wide_of(total.dtype))
    y, _, _ = normalized(wide, (2,), call.number("epsilon", 1e-12))
    y = y.cast(total.dtype) * scale + shift
    if mask is None:
        count = Tensor.zeros(batch, dtype=dtypes.int32, device=words.device)
    else:
        count = (mask == 1).sum(1, dtype=dtypes.int32)
    return y, count, total


# --- of groups of channels -----------------------------------------------------------------------


@onnx_op("GroupNorm", domain=MICROSOFT)
def group_norm(call: Call, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Normalises groups of channels, which come last unless the node says otherwise."""
    groups, is_last = call.integer("groups"), bool(call.integer("channels_last", 1))
    planes = x.permute((0, x.ndim - 1, *range(1, x.ndim - 1))) if is_last else x
    n, c = planes.shape[:2]
    if c % groups:
        raise ModelFileError(f"onnx: {call.node} has {c} channels in {groups} groups")
    wide = planes.cast(wide_of(x.dtype)).reshape((n, groups, -1))
    y, _, _ = normalized(wide, (2,), call.number("epsilon", 1e-5))
    row = (1, -1, 1)
    y = y.reshape((n, c, -1)) * scale.reshape(row) + shift.reshape(row)
    y = y * y.sigmoid() if call.integer("activation") else y
    y = y.reshape(planes.shape)
    y = y.permute((0, *range(2, x.ndim), 1)) if is_last else y
    return y.cast(x.dtype)


@onnx_op("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(
    call: Call,
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    skip: Tensor,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The same of x + skip + bias, which is the second result."""
    is_last = bool(call.integer("channels_last", 1))

    def spread(part: Tensor) -> Tensor:
        if part.ndim == x.ndim:
            return part
        part = part.reshape((1, -1)) if part.ndim == 1 else part
        middle = (1,) * (x.ndim - 2)
        n, c = part.shape
        return part.reshape((n, *middle, c) if is_last else (n, c, *middle))

    total = x + spread(skip)
    total = total if bias is None else total + spread(bias)
    return group_norm(call, total, scale, shift), total
