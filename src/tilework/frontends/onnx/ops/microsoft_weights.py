"""Weights of a few bits in ONNX Runtime's own domain: packed in bytes, with a scale for each block.

They are widened here; what depends on weights alone is computed once for a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilework import dtypes
from tilework.base.errors import ModelFileError, UnsupportedError
from tilework.frontends.onnx.call import place_of
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import full, tensor_of

if TYPE_CHECKING:
    from tilework.frontends.onnx.call import Call
    from tilework.tensor.tensor import Tensor

MICROSOFT = "com.microsoft"
# What the sixteen codes of two kinds of 4-bit floats stand for.
_FP4 = (0.0, 0.0052083333, 0.6666667, 1.0, 0.33333334, 0.5, 0.16666667, 0.25)
_NF4 = (
    -1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
)  # fmt: skip


def unpacked(x: Tensor, bits: int) -> Tensor:
    """The numbers of `bits` bits in the bytes of the last axis, the lowest bits first."""
    if bits == 8:
        return x
    many = 8 // bits
    parts = [(x >> (bits * at)) & ((1 << bits) - 1) for at in range(many)]
    return parts[0].stack(*parts[1:], dim=-1).reshape((*x.shape[:-1], x.shape[-1] * many))


def _bits_of(call: Call) -> int:
    bits = call.integer("bits", 4)
    if bits not in (2, 4, 8):
        raise UnsupportedError(
            f"onnx: {call.node} has weights of {bits} bits", expected="2, 4 or 8"
        )
    return bits


@onnx_op("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(
    call: Call,
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    points: Tensor | None = None,
    group_of: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """a @ weights^T; each row of weights has blocks with a scale and a zero point."""
    if call.integer("weight_prepacked", 0):
        raise UnsupportedError(f"onnx: {call.node} has weights packed for one kind of card")
    call.integer("accuracy_level", 0)  # the least that is wanted; this is float32
    bits, inner, rows = _bits_of(call), call.integer("K"), call.integer("N")
    block = call.integer("block_size")
    blocks = -(-inner // block)
    if group_of is not None and points is not None:
        raise UnsupportedError(
            f"onnx: {call.node} has zero points beside an order of its columns", got="g_idx"
        )
    codes = unpacked(b.reshape((rows, -1)), bits).reshape((rows, blocks, block))
    points = _points(points, bits, rows, blocks, scales)
    scales = scales.reshape((rows, blocks))
    if group_of is None:
        weights = (codes.cast(scales.dtype) - points.unsqueeze(2)) * scales.unsqueeze(2)
        weights = weights.reshape((rows, blocks * block))[:, :inner]
    else:  # a block for each column, in any order
        codes, groups = codes.reshape((rows, blocks * block))[:, :inner], group_of[:inner]
        weights = (codes.cast(scales.dtype) - points[:, groups]) * scales[:, groups]
    y = a.matmul(weights.cast(a.dtype).transpose(0, 1))
    return y if bias is None else y + bias


def _points(points: Tensor | None, bits: int, rows: int, blocks: int, like: Tensor) -> Tensor:
    """The zero point of each block, as floats."""
    if points is None:
        return full((rows, blocks), 1 << (bits - 1), like.dtype, like.device)
    if points.dtype is dtypes.uint8:
        points = unpacked(points.reshape((rows, -1)), bits)
    return points.reshape((rows, -1))[:, :blocks].cast(like.dtype)


@onnx_op("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(call: Call, a: Tensor, b: Tensor, largest: Tensor) -> Tensor:
    """a @ weights^T; weights are 4-bit floats times the largest number of their block."""
    call.integer("training_mode", 0)
    inner, rows, block = call.integer("K"), call.integer("N"), call.integer("block_size")
    table = _NF4 if call.integer("quant_type") else (*_FP4, *(-value for value in _FP4))
    # The first number is in the upper half of its byte.
    codes = (b >> 4).stack(b & 15, dim=-1).reshape((-1,))[: rows * inner]
    values = tensor_of(np.array(table, np.float32), call.device)[codes.cast(dtypes.int32)]
    padding = largest.shape[0] * block - rows * inner
    blocks = values.pad(((0, padding),)).reshape((-1, block)) * largest.unsqueeze(1)
    weights = blocks.reshape((-1,))[: rows * inner].reshape((rows, inner)).cast(a.dtype)
    return a.matmul(weights.transpose(0, 1) if call.integer("transB", 1) else weights)


@onnx_op("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(
    call: Call, data: Tensor, indices: Tensor, scales: Tensor, points: Tensor | None = None
) -> Tensor:
    """Widened slices along an axis; an index outside gives zeros."""
    bits, block = _bits_of(call), call.integer("block_size", 128)
    is_packed = data.dtype is dtypes.uint8
    if is_packed:
        data = unpacked(data, bits)
        if points is not None:
            points = unpacked(points, bits)
    axis = place_of(call, call.integer("gather_axis", 0), data.ndim)
    along = place_of(call, call.integer("quantize_axis", 1), data.ndim)
    if block < 1 or -(-data.shape[along] // block) != scales.shape[along]:
        raise ModelFileError(
            f"onnx: {call.node} has scales that do not fit its blocks",
            got=f"{scales.shape[along]} scales for {data.shape[along]} numbers of block {block}",
        )
    values = data.cast(scales.dtype)
    if points is not None:
        values = values - _spread(points, along, block, data).cast(scales.dtype)
    elif is_packed:
        values = values - (1 << (bits - 1))
    values = values * _spread(scales, along, block, data)
    size = data.shape[axis]
    places = (indices < 0).where(indices + size, indices)
    is_inside = (places >= 0) & (places < size)
    found = values[(*([slice(None)] * axis), is_inside.where(places, places * 0))]
    after = data.ndim - axis - 1
    is_inside = is_inside.reshape((*indices.shape, *([1] * after)))
    shown: Tensor = is_inside.where(found, full((), 0, found.dtype, found.device))
    return shown


def _spread(x: Tensor, axis: int, block: int, like: Tensor) -> Tensor:
    """One number for each block along an axis, repeated for each number of the block."""
    wide = x.unsqueeze(axis + 1)
    wide = wide.expand((*wide.shape[: axis + 1], block, *wide.shape[axis + 2 :]))
    wide = wide.reshape((*x.shape[:axis], x.shape[axis] * block, *x.shape[axis + 1 :]))
    cut = [slice(None)] * x.ndim
    cut[axis] = slice(0, like.shape[axis])
    # The last axis of packed zero points may be longer than that of the numbers.
    return wide[tuple(cut)]
