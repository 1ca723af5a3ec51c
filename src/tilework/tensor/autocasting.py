"""Products of float32 in a narrower dtype, where a block of code asks for it.

    with autocast(dtypes.bfloat16):
        loss = model(x).cross_entropy(y)

Operands of products and convolutions are rounded to the dtype, their results have it, and sums
inside of them are float32 as always.  Everything else keeps the dtypes that it has: weights, the
optimizer's state, softmax, norms and losses of float32.  Gradients follow: a cast's is a cast.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilework.base import settings
from tilework.base.errors import UserError
from tilework.dtypes import by_name
from tilework.tensor.creation import as_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilework.dtypes import DType

_NARROW = ("float16", "bfloat16")


@contextmanager
def autocast(dtype: DType | str | None) -> Iterator[None]:
    """Compute products of wider floats in `dtype` while the block runs; None turns that off.

    Args:
        dtype: float16, bfloat16, or None.

    Raises:
        UserError: another dtype.

    Example:
        >>> from tilework import Tensor, dtypes
        >>> with autocast(dtypes.bfloat16):
        ...     (Tensor.ones(2, 3) @ Tensor.ones(3, 4)).dtype.name
        'bfloat16'
    """
    name = "" if dtype is None else as_dtype(dtype).name
    if name and name not in _NARROW:
        raise UserError("autocast: products are made in float16 or bfloat16", got=name)
    with settings.override(autocast=name):
        yield


def narrowed(*operands: Any) -> tuple[Any, ...]:
    """The operands of one product, rounded if a block around asks for it.

    Integers, and floats that are as narrow already, stay.
    """
    name = settings.current().autocast
    if not name:
        return operands
    dtype = by_name(name)
    return tuple(
        [
            each.cast(dtype) if each.dtype.is_float and each.dtype.bits > dtype.bits else each
            for each in operands
        ]
    )
