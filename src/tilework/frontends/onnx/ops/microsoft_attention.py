"""Attention of ONNX Runtime's own domain: what its optimiser and its model builder write.

All are softmax(scale * q @ k^T + mask) @ v.  They differ in how queries, keys and values arrive,
how masks are said, and in how keys and values of earlier tokens are kept.  Heads lie on axis 1:
(batch, heads, tokens, size).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tilework import dtypes
from tilework.base.errors import ModelFileError, UnsupportedError
from tilework.frontends.onnx.ops.norm import wide_of
from tilework.frontends.onnx.ops.quantise import matmul_integer
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import filled, full
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.frontends.onnx.call import Call

MICROSOFT = "com.microsoft"


# --- heads and masks -----------------------------------------------------------------------------


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, tokens, heads * size) with the heads on an axis of their own, the second."""
    return x.reshape((*x.shape[:2], heads, x.shape[2] // heads)).transpose(1, 2)


def joined_heads(x: Tensor) -> Tensor:
    """The reverse of `split_heads`."""
    return x.transpose(1, 2).reshape((x.shape[0], x.shape[2], x.shape[1] * x.shape[3]))


def _refuse(call: Call, *names: str) -> None:
    """Refuse attributes that are set and that no rule here knows."""
    for name in names:
        if call.integer(name, 0):
            raise UnsupportedError(f"onnx: {call.node} has the attribute {name}", got=name)


def _no_tokens(call: Call, mask: Tensor | None, batch: int, total: int) -> Tensor | None:
    """Where a mask of any of its forms hides a key: broadcast to (batch, heads, queries, keys).

    Raises: UnsupportedError for the forms of packed batches.
    """
    if mask is None:
        return None
    if mask.ndim == 1:
        place = Tensor.arange(total, device=mask.device).cast(mask.dtype)
        if mask.shape[0] == batch:  # the end of each
            hidden = place >= mask.reshape((batch, 1))
        elif mask.shape[0] == 2 * batch:  # the ends, then the starts
            ends, starts = mask[:batch].reshape((batch, 1)), mask[batch:].reshape((batch, 1))
            hidden = (place >= ends) | (place < starts)
        else:
            raise _mask_error(call, mask, batch)
        return hidden.reshape((batch, 1, 1, total))
    if mask.ndim == 2 and mask.shape[1] == total:
        return (mask <= 0).reshape((mask.shape[0], 1, 1, total))
    if mask.ndim == 3 and mask.shape[2] == total:
        return (mask <= 0).unsqueeze(1)
    raise _mask_error(call, mask, batch)


def _mask_error(call: Call, mask: Tensor, batch: int) -> UnsupportedError:
    return UnsupportedError(
        f"onnx: {call.node} has a mask of another form than tilework knows",
        got=f"shape {tuple(mask.shape)} for a batch of {batch}",
        expected="(batch), (2 * batch), (batch, keys) or (batch, queries, keys)",
    )


def _later(queries: int, keys: int, past: int, device: str | None) -> Tensor:
    """Where a key comes after the query: (queries, keys)."""
    rows = Tensor.arange(queries, device=device).reshape((queries, 1)) + past
    return Tensor.arange(keys, device=device).reshape((1, keys)) > rows


def _scores(call: Call, q: Tensor, k: Tensor, scale: float | None = None) -> Tensor:
    """scale * q @ k^T, in float32 for narrow floats; a scale of 0 stands for 1 / sqrt(size)."""
    scale = call.number("scale", 0.0) or 1 / math.sqrt(q.shape[-1])
    wide = wide_of(q.dtype)
    return q.cast(wide).matmul(k.cast(wide).transpose(-1, -2)) * scale


def _attended(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The result with its heads joined, and the weights of keys."""
    batch, _, queries, _ = q.shape
    keys = k.shape[2]
    scores = _scores(call, q, k)
    away = full((), call.number("mask_filter_value", -10000.0), scores.dtype, scores.device)
    none = full((), 0.0, scores.dtype, scores.device)
    hidden = _no_tokens(call, mask, batch, keys)
    if hidden is not None:
        scores = scores + hidden.where(away, none)
    if bias is not None:
        scores = scores + bias.cast(scores.dtype)
    if call.integer("unidirectional", 0):
        least = full((), float(np.finfo(scores.dtype.name).min), scores.dtype, scores.device)
        scores = _later(queries, keys, keys - queries, q.device).where(least, scores)
    weights = scores.softmax(-1)
    return joined_heads(weights.matmul(v.cast(scores.dtype)).cast(q.dtype)), weights


# --- projections inside --------------------------------------------------------------------------


@onnx_op("Attention", domain=MICROSOFT)
def attention(
    call: Call,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    added: Tensor | None = None,
    past_length: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Projects `x` to queries, keys and values, and attends."""
    projected = x.matmul(weights)
    projected = projected if bias is None else projected + bias
    return _self_attention(call, projected, mask, past, added)


@onnx_op("QAttention", domain=MICROSOFT, least=5)
def quantised_attention(call: Call, *operands: Tensor | None) -> tuple[Tensor, ...]:
    """The same with 8-bit operands of the projection."""
    x, weights, bias, x_scale, weight_scale, *rest = operands
    mask, x_point, weight_point, past = filled(rest, 4)
    assert x is not None
    assert weights is not None
    assert bias is not None
    assert x_scale is not None
    assert weight_scale is not None
    total = matmul_integer(call, x, weights, x_point, weight_point)
    projected = total.cast(dtypes.float32) * (x_scale * weight_scale)
    return _self_attention(call, projected + bias, mask, past, None)


def _self_attention(
    call: Call,
    projected: Tensor,
    mask: Tensor | None,
    past: Tensor | None,
    added: Tensor | None,
) -> tuple[Tensor, ...]:
    """Attend within (batch, tokens, queries | keys | values); the last result is what is kept."""
    _refuse(call, "do_rotary", "past_present_share_buffer")
    call.integer("rotary_embedding_dim", 0)  # of `do_rotary`
    heads = call.integer("num_heads")
    width = projected.shape[-1]
    sizes = call.integers("qkv_hidden_sizes", (width // 3,) * 3)
    if len(sizes) != 3 or sum(sizes) != width or any(size % heads for size in sizes):
        raise ModelFileError(
            f"onnx: {call.node} has a projection that its heads do not divide",
            got=f"{width} columns for {sizes} and {heads} heads",
        )
    first, second = sizes[0], sizes[0] + sizes[1]
    q = split_heads(projected[:, :, :first], heads)
    k = split_heads(projected[:, :, first:second], heads)
    v = split_heads(projected[:, :, second:], heads)
    if past is not None:
        k, v = past[0].cat(k, dim=2), past[1].cat(v, dim=2)
    y, _ = _attended(call, q, k, v, mask, added)
    return (y, k.stack(v, dim=0)) if call.wants(1) else (y,)


# --- projections outside -------------------------------------------------------------------------


@onnx_op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(call: Call, query: Tensor, *rest: Tensor | None) -> tuple[Tensor, ...]:
    """Attends to keys and values that are given, or packed beside the queries."""
    key, value, bias, mask, added, past_key, past_value, *shared = filled(rest, 9)
    if any(operand is not None for operand in shared):
        raise UnsupportedError(f"onnx: {call.node} keeps its past in a shared buffer")
    heads = call.integer("num_heads")
    q, k, v = _three(call, heads, query, key, value)
    if bias is not None:
        width, keys = heads * q.shape[-1], heads * k.shape[-1]
        q = q + _by_head(bias[:width], heads)
        if key is None or key.ndim != 4:  # what comes by head has its bias
            k = k + _by_head(bias[width : width + keys], heads)
            v = v + _by_head(bias[width + keys :], heads)
    if call.integer("unidirectional", 0) and q.shape[2] != k.shape[2]:
        raise UnsupportedError(
            f"onnx: {call.node} hides later keys, and nobody says which keys are later",
            got=f"{q.shape[2]} queries and {k.shape[2]} keys",
        )
    if past_key is not None and past_value is not None:
        k, v = past_key.cat(k, dim=2), past_value.cat(v, dim=2)
    y, weights = _attended(call, q, k, v, mask, added)
    return y, k, v, weights.cast(query.dtype)


def _three(
    call: Call, heads: int, query: Tensor, key: Tensor | None, value: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by head, from any of the forms in which they are given."""
    if query.ndim == 5:
        return _unpacked(query, 0), _unpacked(query, 1), _unpacked(query, 2)
    q = split_heads(query, heads)
    if key is not None and key.ndim == 5:
        return q, _unpacked(key, 0), _unpacked(key, 1)
    if key is None or value is None:
        raise ModelFileError(f"onnx: {call.node} has neither keys nor packed operands")
    if key.ndim == 4:  # by head already
        return q, key, value
    return q, split_heads(key, heads), split_heads(value, heads)


def _unpacked(x: Tensor, number: int) -> Tensor:
    """One of (batch, tokens, heads, several, size)."""
    return x[:, :, :, number].transpose(1, 2)


def _by_head(bias: Tensor, heads: int) -> Tensor:
    return bias.reshape((1, heads, 1, -1))


# --- positions -----------------------------------------------------------------------------------


def rotated(
    x: Tensor, places: Tensor, cosines: Tensor, sines: Tensor, *, is_interleaved: bool
) -> Tensor:
    """Turn pairs of elements by the angles of their tokens' places.

    Args:
        x: (batch, heads, tokens, size); what lies behind twice the tables' width is not turned.
        places: row of the tables for each token, (batch or 1, tokens).
        cosines: (places, half of what is turned).
        sines: the same.
        is_interleaved: pairs are neighbours; else the halves are paired.
    """
    half = cosines.shape[-1]
    wide = wide_of(x.dtype)
    cosine = cosines[places].cast(wide).unsqueeze(1)  # (batch, 1, tokens, half)
    sine = sines[places].cast(wide).unsqueeze(1)
    turned, rest = x[..., : 2 * half].cast(wide), x[..., 2 * half :]
    if is_interleaved:
        pairs = turned.reshape((*x.shape[:3], half, 2))
        real, imaginary = pairs[..., 0], pairs[..., 1]
    else:
        real, imaginary = turned[..., :half], turned[..., half:]
    first = real * cosine - imaginary * sine
    second = real * sine + imaginary * cosine
    if is_interleaved:
        found = first.stack(second, dim=-1).reshape(turned.shape)
    else:
        found = first.cat(second, dim=-1)
    found = found.cast(x.dtype)
    return found.cat(rest, dim=-1) if rest.shape[-1] else found


@onnx_op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(
    call: Call, x: Tensor, places: Tensor, cosines: Tensor, sines: Tensor
) -> Tensor:
    """Turns (batch, heads, tokens, size), or (batch, tokens, heads * size)."""
    _refuse(call, "is_packed_batching")
    if call.number("scale", 1.0) != 1.0:
        raise UnsupportedError(f"onnx: {call.node} scales what it turns")
    is_flat = x.ndim == 3
    width = call.integer("rotary_embedding_dim", 0)
    heads = call.integer("num_heads", 0)
    if is_flat:
        heads = heads if width and heads else x.shape[2] // (2 * cosines.shape[-1])
        x = split_heads(x, heads)
    tokens = x.shape[2]
    if places.shape == (1,):
        places = places + Tensor.arange(tokens, device=x.device).cast(places.dtype)
    found = rotated(
        x,
        places.reshape((-1, tokens)),
        cosines,
        sines,
        is_interleaved=bool(call.integer("interleaved", 0)),
    )
    return joined_heads(found) if is_flat else found


# --- keys and values shared by several heads -----------------------------------------------------


@onnx_op("GroupQueryAttention", domain=MICROSOFT, host=(6,))
def group_query_attention(
    call: Call, query: Tensor, *operands: Tensor | None
) -> tuple[Tensor, ...]:
    """Attends to keys and values that groups of heads share and that earlier calls have left."""
    key, value, past_key, past_value, ends, total, *rest = filled(operands, 16)
    cosines, sines, places, added, sink, *others = rest
    if ends is None or total is None:
        raise ModelFileError(f"onnx: {call.node} lacks the lengths of its sequences")
    if any(operand is not None for operand in others):
        raise UnsupportedError(f"onnx: {call.node} has operands that only graphics cards take")
    _refuse(call, "sliding_window_cache", "qk_output", "kv_cache_bit_width")
    for name in ("k_quant_type", "v_quant_type"):
        if call.text(name, "NONE") != "NONE":
            raise UnsupportedError(f"onnx: {call.node} keeps quantised keys", got=name)
    for name in ("qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon"):
        call.number(name, 0.0)  # of operands that are refused
    heads, groups = call.integer("num_heads"), call.integer("kv_num_heads")
    q, k, v = _grouped(call, query, key, value, heads, groups)
    batch, _, tokens, _ = q.shape
    longest = int(total.reshape((-1,))[0])  # known on the host
    length = ends.reshape((batch, 1)).cast(dtypes.int32) + 1  # of each sequence, with its past
    is_first = tokens == longest
    past = length * 0 if is_first else length - tokens
    step = Tensor.arange(tokens, device=q.device).cast(dtypes.int32).reshape((1, tokens))
    where = past + step  # place of each query, (batch, tokens)
    if call.integer("do_rotary", 0):
        if cosines is None or sines is None:
            raise ModelFileError(f"onnx: {call.node} turns without tables of cosines and sines")
        turns = where
        if places is not None:  # of a prompt without a past the operator takes the first place only
            turns = places.reshape((-1,))[:1] + step if is_first else places.reshape((-1, tokens))
        is_interleaved = bool(call.integer("rotary_interleaved", 0))
        q = rotated(q, turns, cosines, sines, is_interleaved=is_interleaved)
        k = rotated(k, turns, cosines, sines, is_interleaved=is_interleaved)
    else:
        call.integer("rotary_interleaved", 0)
    k = _appended(past_key, k, past, longest)
    v = _appended(past_value, v, past, longest)
    y = _group_attended(call, q, k[:, :, :longest], v[:, :, :longest], where, added, sink)
    return y, k, v


def _grouped(
    call: Call,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    heads: int,
    groups: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of all heads, keys and values of the groups; they may be packed into `query`."""
    if heads % groups:
        raise ModelFileError(
            f"onnx: {call.node} has heads that its groups do not divide", got=f"{heads} {groups}"
        )
    if key is not None and value is not None:
        return split_heads(query, heads), split_heads(key, groups), split_heads(value, groups)
    size = query.shape[-1] // (heads + 2 * groups)
    first, second = heads * size, (heads + groups) * size
    return (
        split_heads(query[:, :, :first], heads),
        split_heads(query[:, :, first:second], groups),
        split_heads(query[:, :, second:], groups),
    )


def _appended(past: Tensor | None, new: Tensor, start: Tensor, total: int) -> Tensor:
    """`new` written behind what was kept: from place `start` on, which differs by sequence.

    Behind it there are zeros.
    """
    batch, heads, tokens, size = new.shape
    old = 0 if past is None else past.shape[2]
    if past is None or (old == 0 and tokens == total):
        return new
    room = max(old, total)
    kept = past if old == room else past.pad(((0, 0), (0, 0), (0, room - old), (0, 0)))
    place = Tensor.arange(room, device=new.device).cast(start.dtype).reshape((1, room)) - start
    is_new = ((place >= 0) & (place < tokens)).reshape((batch, 1, room, 1))
    index = place.clip(0, tokens - 1).reshape((batch, 1, room, 1)).cast(dtypes.int64)
    moved = new.gather(2, index.expand((batch, heads, room, size)))
    none = full((), 0, new.dtype, new.device)
    is_old = (place < 0).reshape((batch, 1, room, 1))
    written: Tensor = is_new.where(moved, is_old.where(kept, none))
    return written


def _group_attended(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    where: Tensor,
    added: Tensor | None,
    sink: Tensor | None,
) -> Tensor:
    """Each group of heads attends to its keys, in the window before each query."""
    batch, heads, tokens, size = q.shape
    groups, keys = k.shape[1], k.shape[2]
    shared = q.reshape((batch, groups, heads // groups * tokens, size))
    scores = _scores(call, shared, k).reshape((batch, heads, tokens, keys))
    cap = call.number("softcap", 0.0)
    if cap:
        scores = (scores / cap).tanh() * cap
    if added is not None:
        scores = scores + added[..., :keys].cast(scores.dtype)
    place = Tensor.arange(keys, device=q.device).cast(where.dtype).reshape((1, 1, keys))
    query = where.reshape((batch, tokens, 1))
    window = call.integer("local_window_size", -1)
    seen = place <= query if call.integer("causal", 1) else place < keys
    if window >= 0:
        seen = seen & (place > query - window)
    none = full((), -math.inf, scores.dtype, scores.device)
    scores = seen.unsqueeze(1).where(scores, none)
    is_smooth = call.integer("smooth_softmax", 0) > 0
    weights = _with_sink(scores, sink) if is_smooth or sink is not None else scores.softmax(-1)
    if window == 0:  # no key is seen, and none has a weight
        weights = weights.zeros_like()
    weights = weights.reshape((batch, groups, heads // groups * tokens, keys))
    found = weights.matmul(v.cast(scores.dtype)).cast(q.dtype)
    return joined_heads(found.reshape((batch, heads, tokens, size)))


def _with_sink(scores: Tensor, sink: Tensor | None) -> Tensor:
    """A softmax with one more score in its sum, that takes weight and gives nothing."""
    shape: Sequence[int] = (*scores.shape[:-1], 1)
    if sink is None:
        more = full(shape, 0.0, scores.dtype, scores.device)
    else:
        more = sink.cast(scores.dtype).reshape((1, -1, 1, 1)).expand(tuple(shape))
    weights: Tensor = scores.cat(more, dim=-1).softmax(-1)[..., :-1]
    return weights
