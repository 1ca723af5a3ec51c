"""The sort of one contiguous row inside a kernel: what SORT becomes once it has buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilework.base.errors import DTypeError
from tilework.dtypes import bool_, index
from tilework.ir.node import Attrs, Node, OpDef
from tilework.ir.ops.define import define_op
from tilework.ir.stage import Stage
from tilework.ir.types import Type, make_type


@dataclass(frozen=True, slots=True)
class SortRowsAttrs(Attrs):
    """Whether the greatest element comes first; equal ones keep their order either way.

    Of the sorted positions `count` from `first` on are written (-1: all), or with `values` the
    elements there.
    """

    descending: bool
    first: int = 0
    count: int = -1
    values: bool = False


def _infer_sort_rows(src: tuple[Node, ...], attrs: Any) -> Type:
    target, source, size = src
    if target.type.memory is None or source.type.memory is None:
        raise DTypeError("sort_rows: needs two addresses", got=f"{target.type}, {source.type}")
    written = source.type.dtype if attrs.values else index
    if target.type.dtype is not written or size.type.dtype is not index:
        raise DTypeError(
            "sort_rows: positions and the size are int64, values what the elements are",
            got=f"{target.type}, size {size.type}",
            expected=str(written),
        )
    return make_type((), bool_)


SORT_ROWS: OpDef = define_op(
    "sort_rows",
    operands=("target", "source", "size"),
    attrs=SortRowsAttrs,
    infer=_infer_sort_rows,
    stages=Stage.KERNEL | Stage.TILED | Stage.LOWERED,
    doc=(
        "Write to the `size` elements from `target` on the positions, counted from `source`, that "
        "sort the elements there, as SORT does; with a `count` so many of them, from `first` on; "
        "with `values` the elements at these positions. "
        "The rows that the free ranges give do not overlap."
    ),
    pure=False,
)
