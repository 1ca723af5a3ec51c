"""Movement, joining, indexing, gathers, scatters and writes through views."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import strategies as st
from tests.differential.generated.judge import Op, composed, summed
from tests.differential.generated.operands import (
    FLOATS,
    SIGNED,
    Operand,
    Shape,
    a_shape,
    an_operand,
)  # fmt: skip

from tilework import Tensor

_KINDS = (*FLOATS, *SIGNED, "uint8", "bool")
_REAL = ("float32", "float64", "float16", "bfloat16")
_FILLS = ("normal", "ties", "special", "extreme")


def _operand(draw: Any, shape: Shape, kinds: Any = _KINDS, fill: str | None = None) -> Operand:
    fill = fill or draw(st.sampled_from(_FILLS))
    return draw(an_operand(draw(st.sampled_from(kinds)), shape, fill))  # type: ignore[no-any-return]


def _permuted(draw: Any) -> Any:
    shape = draw(a_shape())
    order = draw(st.permutations(range(len(shape))))
    return (_operand(draw, shape),), {"order": tuple(order)}


def _reshaped(draw: Any) -> Any:
    shape = draw(a_shape(zero=False))
    size = math.prod(shape)
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    first = draw(st.sampled_from(divisors))
    rest = size // first
    target = draw(st.sampled_from(((first, rest), (rest, 1, first), (-1, first), (size,))))
    return (_operand(draw, shape),), {"shape": target}


def _expanded(draw: Any) -> Any:
    shape = draw(a_shape(most=3))
    full = tuple(draw(st.integers(1, 4)) if size == 1 else size for size in shape)
    lead = draw(st.sampled_from(((), (2,), (1, 3))))
    return (_operand(draw, shape),), {"shape": (*lead, *full)}


def _padded(draw: Any) -> Any:
    shape = draw(a_shape(least=1))
    count = draw(st.integers(1, len(shape)))
    sides = []
    for axis in range(count):
        size = shape[-1 - axis]
        low = draw(st.integers(-min(size, 2), 3))
        high = draw(st.integers(-min(size + min(low, 0), 2), 3))
        sides += [low, high] if size + low + high >= 0 else [0, 0]
    operand = _operand(draw, shape, fill=draw(st.sampled_from(("normal", "ties"))))
    value = draw(st.sampled_from((0, 1))) if operand.dtype != "bool" else 0
    return (operand,), {"pad": tuple(sides), "value": value}


def _padded_modes(draw: Any) -> Any:
    count = draw(st.integers(1, 3))
    shape = (*draw(st.sampled_from(((2, 2), (1, 3)))), *(draw(st.integers(3, 6))
             for _ in range(count)))  # fmt: skip
    sides = tuple(draw(st.integers(0, 2)) for _ in range(2 * count))
    mode = draw(st.sampled_from(("reflect", "replicate", "circular")))
    return (_operand(draw, shape, ("float32", "float64"), "normal"),), {"pad": sides, "mode": mode}


def _axes(draw: Any) -> Any:
    shape = draw(a_shape(least=1))
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    return (_operand(draw, shape),), {"axes": axes}


def _rolled(draw: Any) -> Any:
    operands, options = _axes(draw)
    shifts = tuple(draw(st.integers(-5, 5)) for _ in options["axes"])
    return operands, {"shifts": shifts, "axes": options["axes"]}


def _repeated(draw: Any) -> Any:
    shape = draw(a_shape(most=3))
    extra = draw(st.integers(0, 1))
    times = tuple(draw(st.integers(0 if draw(st.integers(0, 5)) == 0 else 1, 3))
                  for _ in range(len(shape) + extra))  # fmt: skip
    return (_operand(draw, shape),), {"times": times}


def _interleaved(draw: Any) -> Any:
    shape = draw(a_shape(least=1))
    return (_operand(draw, shape),), {
        "times": draw(st.integers(1, 3)), "axis": draw(st.integers(-len(shape), len(shape) - 1))
    }  # fmt: skip


def _joined(draw: Any) -> Any:
    shape = draw(a_shape(least=1))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    kind = (draw(st.sampled_from(_KINDS)),)
    operands = []
    for _ in range(draw(st.integers(1, 4))):
        size = draw(st.sampled_from((0, 1, 2, 5, shape[axis])))
        other = list(shape)
        other[axis] = size
        operands.append(_operand(draw, tuple(other), kind))
    return tuple(operands), {"axis": axis}


def _stacked(draw: Any) -> Any:
    shape = draw(a_shape(most=3))
    kind = (draw(st.sampled_from(_KINDS)),)
    operands = tuple(_operand(draw, shape, kind) for _ in range(draw(st.integers(1, 3))))
    return operands, {"axis": draw(st.integers(-len(shape) - 1, len(shape)))}


def _halves(draw: Any) -> Any:
    shape = draw(a_shape(least=1, zero=False))
    return (_operand(draw, shape),), {
        "count": draw(st.integers(1, 4)), "axis": draw(st.integers(0, len(shape) - 1))
    }  # fmt: skip


def _matrices(draw: Any) -> Any:
    shape = draw(a_shape(least=2))
    return (_operand(draw, shape),), {"offset": draw(st.integers(-3, 3))}


def _unfolded(draw: Any) -> Any:
    shape = draw(a_shape(least=1, most=3, zero=False))
    axis = draw(st.integers(0, len(shape) - 1))
    return (_operand(draw, shape),), {
        "axis": axis, "size": draw(st.integers(1, shape[axis])), "step": draw(st.integers(1, 3))
    }  # fmt: skip


def _movements() -> list[Op]:
    table: list[tuple[str, Any, Any, Any]] = [
        ("permute", lambda x, order: x.permute(order), lambda x, order: x.permute(order),
         _permuted),
        ("reshape", lambda x, shape: x.reshape(shape), lambda x, shape: x.reshape(shape),
         _reshaped),
        ("expand", lambda x, shape: x.expand(shape), lambda x, shape: x.expand(shape), _expanded),
        ("pad", lambda x, pad, value: x.pad(list(pad), value=value),
         lambda x, pad, value: torch.nn.functional.pad(x, pad, value=value), _padded),
        ("pad_mode", lambda x, pad, mode: x.pad(list(pad), mode=mode),
         lambda x, pad, mode: torch.nn.functional.pad(x, pad, mode=mode), _padded_modes),
        ("flip", lambda x, axes: x.flip(axes), lambda x, axes: x.flip(axes), _axes),
        ("roll", lambda x, shifts, axes: x.roll(shifts, axes),
         lambda x, shifts, axes: x.roll(shifts, axes), _rolled),
        ("repeat", lambda x, times: x.repeat(times), lambda x, times: x.repeat(times), _repeated),
        ("repeat_interleave", lambda x, times, axis: x.repeat_interleave(times, axis),
         lambda x, times, axis: x.repeat_interleave(times, axis), _interleaved),
        ("cat", lambda x, *rest, axis: x.cat(*rest, dim=axis),
         lambda *each, axis: torch.cat(each, axis), _joined),
        ("stack", lambda x, *rest, axis: x.stack(*rest, dim=axis),
         lambda *each, axis: torch.stack(each, axis), _stacked),
        ("chunk", lambda x, count, axis: x.chunk(count, axis),
         lambda x, count, axis: x.chunk(count, axis), _halves),
        ("split", lambda x, count, axis: x.split(count, axis),
         lambda x, count, axis: x.split(count, axis), _halves),
        ("tensor_split", lambda x, count, axis: x.tensor_split(count, axis),
         lambda x, count, axis: x.tensor_split(count, axis), _halves),
        ("tril", lambda x, offset: x.tril(offset), lambda x, offset: x.tril(offset), _matrices),
        ("triu", lambda x, offset: x.triu(offset), lambda x, offset: x.triu(offset), _matrices),
        ("diagonal", lambda x, offset: x.diagonal(offset),
         lambda x, offset: x.diagonal(offset), _matrices),
        ("unfold", lambda x, axis, size, step: x.unfold(axis, size, step),
         lambda x, axis, size, step: x.unfold(axis, size, step), _unfolded),
        ("flatten", lambda x, axes: x.flatten(axes[0], axes[-1]),
         lambda x, axes: x.flatten(axes[0], axes[-1]), _axes),
        ("movedim", lambda x, axes: x.movedim(axes[0], axes[-1]),
         lambda x, axes: x.movedim(axes[0], axes[-1]), _axes),
        ("squeeze", lambda x, axes: x.squeeze(axes[0]), lambda x, axes: x.squeeze(axes[0]), _axes),
        ("unsqueeze", lambda x, axes: x.unsqueeze(axes[0]),
         lambda x, axes: x.unsqueeze(axes[0]), _axes),
    ]  # fmt: skip
    return [Op(name, ours, theirs, how, is_native=True, has_signed_zeros=True)
            for name, ours, theirs, how in table]  # fmt: skip


# --- indices -----------------------------------------------------------------------------------


def _an_index(draw: Any, shape: Shape) -> tuple[Any, ...]:
    """A mixed index: slices, numbers, new axes, an ellipsis, lists and masks as data."""
    found: list[Any] = []
    length = draw(st.sampled_from((1, 2, 3)))
    count = draw(st.integers(0, len(shape)))
    for size in shape[:count]:
        kind = draw(st.sampled_from(("slice", "slice", "number", "list", "new", "mask")))
        if kind == "new":
            found.append(None)
        if kind == "number" and size:
            found.append(draw(st.integers(-size, size - 1)))
        elif kind == "list" and size:
            found.append([draw(st.integers(-size, size - 1)) for _ in range(length)])
        elif kind == "mask" and size and not any(isinstance(one, list) for one in found):
            mask = [False] * size
            for place in draw(st.lists(st.integers(0, size - 1), min_size=length, max_size=length)):
                mask[place] = True
            if sum(mask) in (length, 1):
                found.append(mask)
            else:
                found.append(slice(None))
        else:
            ends = st.one_of(st.none(), st.integers(-size - 1, size + 1))
            found.append(slice(draw(ends), draw(ends), draw(st.sampled_from((None, 1, 2, 3)))))
    if count < len(shape) and draw(st.booleans()):
        found.append(Ellipsis)
    return tuple(found)


def _for_ours(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(Tensor(one) if isinstance(one, list) else one for one in index)


def _for_theirs(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(torch.tensor(one) if isinstance(one, list) else one for one in index)


def _indexed(draw: Any) -> Any:
    shape = draw(a_shape())
    return (_operand(draw, shape),), {"index": _an_index(draw, shape)}


def _written(draw: Any) -> Any:
    """A target, a value that broadcasts to the place, and the place."""
    shape = draw(a_shape())
    index = _an_index(draw, shape)
    lists = [one for one in index if isinstance(one, list)]
    if lists and any(len(set(map(int, one))) < len(one) for one in lists if one[0] is not True
                     and one[0] is not False):  # fmt: skip
        index = tuple(slice(None) if isinstance(one, list) else one for one in index)
    inner = torch.zeros(shape)[_for_theirs(index)].shape
    kind = (draw(st.sampled_from(_KINDS)),)
    value = tuple(1 if draw(st.integers(0, 3)) == 0 else size for size in inner)
    return (_operand(draw, shape, kind), _operand(draw, value, kind)), {"index": index}


def _set_ours(x: Tensor, value: Tensor, index: tuple[Any, ...]) -> Tensor:
    y = x.clone()
    y[_for_ours(index)] = value
    return y


def _set_theirs(x: torch.Tensor, value: torch.Tensor, index: tuple[Any, ...]) -> torch.Tensor:
    y = x.clone()
    y[_for_theirs(index)] = value
    return y


def _write_through_views(x: Any, value: Any, flips: bool) -> Any:
    """Writes through views of views, with readers of old values between them."""
    y = x.clone()
    before = y * 1
    view = y.transpose(0, 1)
    view[1:] = view[1:] * 2 + value
    y[0] = y[-1] if not flips else y[-1] + before[0]
    return y, before


def _viewed(draw: Any) -> Any:
    rows, columns = draw(st.integers(2, 6)), draw(st.integers(2, 6))
    kind = (draw(st.sampled_from(_REAL)),)
    return (_operand(draw, (rows, columns), kind, "ties"), _operand(draw, (), kind, "ties")), {
        "flips": draw(st.booleans())
    }


def _indices() -> list[Op]:
    return [
        Op("getitem", lambda x, index: x[_for_ours(index)], lambda x, index: x[_for_theirs(index)],
           _indexed, is_native=True, has_signed_zeros=True),
        Op("setitem", _set_ours, _set_theirs, _written, is_native=True, has_signed_zeros=True),
        Op("writes_through_views", _write_through_views, _write_through_views, _viewed,
           is_native=True),
    ]  # fmt: skip


# --- gathers and scatters -----------------------------------------------------------------------


def _a_place(draw: Any, shape: Shape, limit: int) -> list[Any]:
    """Nested lists of indices of this shape below a limit."""
    if not shape:
        return draw(st.integers(0, limit - 1))  # type: ignore[no-any-return]
    return [_a_place(draw, shape[1:], limit) for _ in range(shape[0])]


def _gathered(draw: Any) -> Any:
    shape = draw(a_shape(most=3, zero=False))
    if not shape:
        return (_operand(draw, shape),), {"axis": 0, "index": 0}
    axis = draw(st.integers(0, len(shape) - 1))
    other = tuple(draw(st.integers(1, min(size, 4))) for size in shape)
    index = _a_place(draw, other, shape[axis])
    return (_operand(draw, shape),), {"axis": axis, "index": index}


def _scattered(draw: Any) -> Any:
    operands, options = _gathered(draw)
    (x,) = operands
    kind = x.dtype if x.dtype != "bool" else "int32"
    shape = tuple(torch.tensor(options["index"]).shape)
    operands = (_operand(draw, x.shape, (kind,), "ties"), _operand(draw, shape, (kind,), "ties"))
    return operands, options


def _reduced(draw: Any) -> Any:
    operands, options = _scattered(draw)
    names: tuple[str, ...] = ("sum", "prod", "amax", "amin")
    if operands[0].dtype in FLOATS:
        names += ("mean",)
    return operands, options | {"reduce": draw(st.sampled_from(names))}


def _replaced(draw: Any) -> Any:
    operands, options = _reduced(draw)
    return operands, options | {"include_self": False}


def _selected(draw: Any) -> Any:
    shape = draw(a_shape(least=1, most=3, zero=False))
    axis = draw(st.integers(0, len(shape) - 1))
    index = [draw(st.integers(0, shape[axis] - 1)) for _ in range(draw(st.integers(0, 5)))]
    return (_operand(draw, shape),), {"axis": axis, "index": index}


def _added(draw: Any) -> Any:
    (x,), options = _selected(draw)
    kind = x.dtype if x.dtype != "bool" else "int32"
    shape = list(x.shape)
    shape[options["axis"]] = len(options["index"])
    operands = (_operand(draw, x.shape, (kind,), "ties"),
                _operand(draw, tuple(shape), (kind,), "ties"))  # fmt: skip
    return operands, options


def _put(draw: Any) -> Any:
    shape = draw(a_shape(least=2, most=3, zero=False))
    count = draw(st.integers(1, 5))
    rows = [draw(st.integers(-shape[0], shape[0] - 1)) for _ in range(count)]
    columns = [draw(st.integers(-shape[1], shape[1] - 1)) for _ in range(count)]
    kind = (draw(st.sampled_from((*FLOATS, *SIGNED))),)
    operands = (
        _operand(draw, shape, kind, "ties"),
        _operand(draw, (count, *shape[2:]), kind, "ties"),
    )
    return operands, {"rows": rows, "columns": columns}


def _masked(draw: Any) -> Any:
    shape = draw(a_shape())
    mask = tuple(1 if draw(st.integers(0, 3)) == 0 else size for size in shape)
    return (_operand(draw, shape), _operand(draw, mask, ("bool",))), {}


def _list(index: Any) -> Any:
    return torch.tensor(index, dtype=torch.int64)


def _own(index: Any) -> Tensor:
    return Tensor(index, dtype="int64") if index != [] else Tensor.zeros(0, dtype="int64")


def _gathers() -> list[Op]:
    return [
        Op("gather", lambda x, axis, index: x.gather(axis, _own(index)),
           lambda x, axis, index: x.gather(axis, _list(index)), _gathered, is_native=True),
        Op("scatter_add", lambda x, y, axis, index: x.scatter_add(axis, _own(index), y),
           lambda x, y, axis, index: x.scatter_add(axis, _list(index), y), _scattered, composed(4)),
        Op("scatter_reduce", lambda x, y, axis, index, **o: x.scatter_reduce(
               axis, _own(index), y, **o),
           lambda x, y, axis, index, **o: x.scatter_reduce(axis, _list(index), y, **o), _reduced,
           composed(8)),
        # PyTorch counts an excluded element among the ties of amax when it shares the gradient.
        Op("scatter_reduce_alone", lambda x, y, axis, index, **o: x.scatter_reduce(
               axis, _own(index), y, **o),
           lambda x, y, axis, index, **o: x.scatter_reduce(axis, _list(index), y, **o), _replaced,
           composed(8), has_gradient=False),
        Op("index_select", lambda x, axis, index: x.index_select(axis, _own(index)),
           lambda x, axis, index: x.index_select(axis, _list(index)), _selected, is_native=True),
        Op("index_add", lambda x, y, axis, index: x.index_add(axis, _own(index), y),
           lambda x, y, axis, index: x.index_add(axis, _list(index), y), _added, summed(4)),
        Op("index_put_accumulate", lambda x, y, rows, columns: x.index_put(
               (_own(rows), _own(columns)), y, accumulate=True),
           lambda x, y, rows, columns: x.index_put((_list(rows), _list(columns)), y, True), _put,
           summed(4)),
        Op("masked_fill", lambda x, mask: x.masked_fill(mask, 1),
           lambda x, mask: x.masked_fill(mask, 1), _masked, is_native=True),
        Op("masked_select", lambda x, mask: x.masked_select(mask),
           lambda x, mask: x.masked_select(mask), _masked, is_native=True, has_gradient=False),
        Op("nonzero", lambda x, mask: mask.nonzero(), lambda x, mask: mask.nonzero(), _masked,
           has_gradient=False),
    ]  # fmt: skip


def families() -> dict[str, list[Op]]:
    """The operations of this module."""
    return {"movement": _movements(), "indices": _indices(), "gathers": _gathers()}
