"""What is in memory as Python numbers, by the standard library alone: NumPy's import is not cheap.

Both ways give the same numbers: `tolist` and `item` take this one, except through views that are
more than another shape, which NumPy puts in order.
"""

from __future__ import annotations

import array
import struct
from typing import TYPE_CHECKING, Any, Final

from tilework import dtypes
from tilework.base.integers import product
from tilework.ir.ops import tensor
from tilework.tensor.host import contents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilework.dtypes import DType
    from tilework.tensor.version import Chain, Version

#: Ops of views that leave the elements in their order.
_IN_ORDER: Final = frozenset({tensor.RESHAPE, tensor.DETACH})


def numbers(
    version: Version, chain: Chain, bindings: Mapping[str, int] | None, count: int
) -> list[Any] | None:
    """The elements of a realized version seen through `chain`; None if they are in another order.

    Args:
        version: what is in memory.
        chain: the view.
        bindings: values of variables in sizes.
        count: how many elements there are; memory may be for more.
    """
    for op, _ in chain:
        if op not in _IN_ORDER:
            return None
    data = contents(version, {**(version.bindings or {}), **(bindings or {})})
    return unpack(data, count, version.node.type.dtype)


def unpack(data: bytearray, count: int, dtype: DType) -> list[Any]:
    """The first `count` elements in `data` as Python numbers."""
    size = count * dtype.itemsize
    if len(data) != size:
        data = data[:size]
    code = dtype.fmt
    if code == "?":
        return [bit != 0 for bit in data]
    if code == "e":
        return list(struct.unpack(f"={count}e", data))
    if code is not None:
        return array.array(code, data).tolist()
    if dtype is dtypes.bfloat16:  # the upper half of a float32
        wide = bytearray(2 * size)
        first = 2 if _IS_LITTLE else 0
        wide[first::4], wide[first + 1 :: 4] = data[0::2], data[1::2]
        return array.array("f", wide).tolist()
    table = [dtypes.decode(bits, dtype) for bits in range(256)]
    return [table[bits] for bits in data]


_IS_LITTLE: Final = array.array("H", [1]).tobytes() == b"\1\0"


def nested(flat: list[Any], shape: Sequence[int]) -> Any:
    """Elements in row-major order as lists in lists; the element itself where there are no axes."""
    if not shape:
        return flat[0]
    for axis in range(len(shape) - 1, 0, -1):
        size = shape[axis]
        if size:
            flat = [flat[start : start + size] for start in range(0, len(flat), size)]
        else:
            flat = [[] for _ in range(product(shape[:axis]))]
    return flat


def repeated(value: float, shape: Sequence[int]) -> Any:
    """Lists in lists that hold one number at every place."""
    return nested([value] * product(shape), shape)
