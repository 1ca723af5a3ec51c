"""Collectives over tensors of single devices: one tensor of each device in, one of each out.

They are short for operations on the tensor that the parts are together, so they are lazy, can be
captured, and have gradients.  How a fold goes between the devices is `choose_allreduce`'s choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

from tilework.base.errors import ShapeError, UserError
from tilework.tensor.tensor import Tensor

Op = Literal["sum", "prod", "max", "min"]


def assemble(parts: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensor whose parts along `axis` are these, one on each device; nothing is moved.

    Args:
        parts: on devices of their own; of equal shapes but for `axis`.
        axis: along which they lie one behind the other.

    Raises:
        ShapeError: they differ in rank, dtype or another axis.
        UserError: two are on one device, or one is on several.

    Example:
        >>> parts = [Tensor([1, 2]), Tensor([3], device="CPU:1")]
        >>> (assemble(parts) * 2).tolist()
        [2, 4, 6]
    """
    if not parts:
        raise UserError("assemble: there are no parts")
    first, *others = parts
    return first._assembled(others, axis)


def broadcast(x: Tensor, devices: Sequence[str]) -> list[Tensor]:
    """`x` on each of `devices`.

    Example:
        >>> [each.device for each in broadcast(Tensor([1.0]), ("CPU:0", "CPU:1"))]
        ['CPU', 'CPU:1']
    """
    return list(x.shard(devices).shards())


def all_gather(parts: Sequence[Tensor], axis: int = 0) -> list[Tensor]:
    """All parts one behind the other along `axis`, on every device.

    Args:
        parts: on devices of their own; of equal shapes but for `axis`.
        axis: along which they lie one behind the other.

    Raises: as `assemble`.

    Example:
        >>> parts = [Tensor([1, 2]), Tensor([3], device="CPU:1")]
        >>> [each.tolist() for each in all_gather(parts)]
        [[1, 2, 3], [1, 2, 3]]
    """
    whole = assemble(parts, axis)
    return list(whole.shard(whole.device).shards())


def all_reduce(parts: Sequence[Tensor], op: Op = "sum") -> list[Tensor]:
    """The parts folded element by element, on every device; all devices get the same bits.

    Args:
        parts: of one shape and dtype, on devices of their own.
        op: sum, prod, max or min.

    Raises:
        ShapeError: the parts differ.
        UserError: the fold is unknown.

    Example:
        >>> parts = [Tensor([1, 2]), Tensor([3, 4], device="CPU:1")]
        >>> [each.tolist() for each in all_reduce(parts)]
        [[4, 6], [4, 6]]
    """
    return list(_folded(parts, op).shards())


def reduce_scatter(parts: Sequence[Tensor], op: Op = "sum", axis: int = 0) -> list[Tensor]:
    """The parts folded element by element, of which each device gets its share along `axis`.

    Args:
        parts: of one shape and dtype, on devices of their own.
        op: sum, prod, max or min.
        axis: that is split, as evenly as its size allows.

    Raises:
        ShapeError: the parts differ.
        UserError: the fold is unknown.

    Example:
        >>> parts = [Tensor([1, 2]), Tensor([3, 4], device="CPU:1")]
        >>> [each.tolist() for each in reduce_scatter(parts)]
        [[4], [6]]
    """
    total = _folded(parts, op)
    return list(total.shard(total.device, axis).shards())


def all_to_all(parts: Sequence[Tensor], split_axis: int = 0, join_axis: int = 0) -> list[Tensor]:
    """Share number i of each part along `split_axis` goes to device i, which joins what it gets.

    Args:
        parts: on devices of their own; of equal shapes but for `join_axis`.
        split_axis: along which each part is cut into one share for each device.
        join_axis: along which a device puts the shares together, in the order of the devices.

    Raises:
        ShapeError: `split_axis` of a part is not as long for all; there are no parts.

    Example:
        >>> parts = [Tensor([[1, 2]]), Tensor([[3, 4]], device="CPU:1")]
        >>> [each.tolist() for each in all_to_all(parts, split_axis=1, join_axis=0)]
        [[[1], [3]], [[2], [4]]]
    """
    if not parts or not parts[0].ndim:
        raise ShapeError(
            "all_to_all: there are no parts, or they have no axis",
            got=[part.shape for part in parts],
        )
    first = parts[0]
    if split_axis % first.ndim != join_axis % first.ndim:
        whole = assemble(parts, join_axis)
        return list(whole.shard(whole.device, split_axis).shards())
    count, size = len(parts), first.shape[split_axis]
    if size % count or any(part.shape != first.shape for part in parts):
        raise ShapeError(
            "all_to_all: each part needs one share of equal size for each device",
            got=f"axis {split_axis} of {[part.shape for part in parts]}",
        )
    axis = split_axis % first.ndim
    shape = first.shape
    raised = [
        part.reshape(*shape[:axis], 1, count, size // count, *shape[axis + 1 :]) for part in parts
    ]
    whole = assemble(raised, axis)
    found = whole.shard(whole.device, axis + 1).shards()
    return [each.reshape(*shape) for each in found]


def _folded(parts: Sequence[Tensor], op: Op) -> Tensor:
    if op not in get_args(Op):
        raise UserError("collective: unknown fold", got=op, expected=", ".join(get_args(Op)))
    for part in parts[1:]:
        if part.shape != parts[0].shape or part.dtype is not parts[0].dtype:
            raise ShapeError(
                "collective: the parts differ",
                got=f"{parts[0].dtype.name}{parts[0].shape} and {part.dtype.name}{part.shape}",
                expected="one shape and dtype",
            )
    stacked = assemble([part.unsqueeze(0) for part in parts])
    folds: dict[str, Callable[..., Tensor]] = {
        "sum": stacked.sum,
        "prod": stacked.prod,
        "max": stacked.max,
        "min": stacked.min,
    }
    return folds[op](0).cast(parts[0].dtype)
