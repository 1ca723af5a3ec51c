"""A function of one row, applied to all rows at once: `vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.tensor.batching import Rows, count_rows, drawing
from tilework.tensor.signature import flatten, rebuild
from tilework.tensor.tensor import Tensor
from tilework.tensor.wrong_calls import describe

#: An axis for all tensors, None for none, or containers of them as the arguments are.
Dims = Any


def vmap(
    func: Callable[..., Any],
    in_dims: Dims = 0,
    out_dims: Dims = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that applies `func` to each row of its arguments, to all of them at once.

    The function runs once, with rows that hold nothing: it cannot ask for their values, as `item`,
    `bool` and `print` do, nor write what it gets from them into a tensor of the outside.  Writes
    into a row are seen by the function alone; the argument stays as it is.

    Args:
        func: takes tensors, or containers of them, and gives tensors, or containers of them.
        in_dims: the axis along which each argument has its rows, or None for one that is the same
            for all rows; a tuple with one for each argument, which may hold containers built as the
            argument is. Arguments by name are the same for all rows.
        out_dims: where the rows go in what comes out, likewise.
        randomness: what draws of random numbers give: "error", "different" numbers for each row, or
            the "same".
        chunk_size: how many rows to take at once; by default all.

    Returns:
        A function of the same arguments with an axis of rows more.

    Raises:
        UserError: the function asks for the value of a row, or draws without a `randomness`.
        ShapeError: the numbers of rows differ.
        DTypeError: something that is no tensor has an axis of rows, or comes out.

    Example:
        >>> from tilework.nn.func import grad, vmap
        >>> rows = Tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> vmap(lambda x, y: (x * y).sum(), in_dims=(0, None))(rows, Tensor([1.0, 10.0])).tolist()
        [21.0, 43.0]
        >>> vmap(grad(lambda x: (x * x * x).sum()))(rows).tolist()
        [[3.0, 12.0], [27.0, 48.0]]
    """
    if chunk_size is not None and chunk_size < 1:
        raise UserError("vmap: chunk_size is below 1", got=chunk_size, expected="None, or from 1")

    def call(*args: Any, **kwargs: Any) -> Any:
        given = flatten(list(args), "vmap")
        if given.variables:
            raise DTypeError("vmap: an argument is a Variable", try_="giving it by name")
        axes = _axes(in_dims, list(args), "in_dims")
        tensors: list[Any] = list(given.tensors)
        places = [
            None if axis is None else x._axis(axis, "vmap: in_dims")
            for x, axis in zip(tensors, axes, strict=True)
        ]
        mapped = [
            x if axis is None else _with_rows_first(x, axis)
            for x, axis in zip(tensors, places, strict=True)
        ]
        has_rows = [axis is not None for axis in places]
        if not any(has_rows):
            raise UserError("vmap: no argument has an axis of rows", got=f"in_dims {in_dims}")
        count = count_rows([x for x, has in zip(mapped, has_rows, strict=True) if has])
        size = count if chunk_size is None else min(chunk_size, count)
        drawn: list[Any] = []

        def run(start: int, stop: int) -> tuple[Any, list[Tensor], list[Any]]:
            rows = Rows(stop - start)
            own = [
                rows.row_of(x if (start, stop) == (0, count) else x[start:stop]) if has else x
                for x, has in zip(mapped, has_rows, strict=True)
            ]
            taken = rebuild(given.tree, own.__getitem__, given.values)
            with drawing(rows, randomness, drawn):
                found = func(*taken, **kwargs)
            return _arranged(rows, found, out_dims)

        starts = range(0, count, max(size, 1)) if count else range(1)
        parts = [run(start, min(start + max(size, 1), count)) for start in starts]
        tree, first, ends = parts[0]
        joined = first
        if len(parts) > 1:
            columns = zip(*[tensors_of for _, tensors_of, _ in parts], strict=True)
            joined = [
                column[0] if end is None else column[0].cat(*column[1:], dim=end)
                for column, end in zip(columns, ends, strict=True)
            ]
        return rebuild(tree, joined.__getitem__, [])

    return call


def _with_rows_first(x: Tensor, axis: int) -> Tensor:
    if not x.ndim:
        raise ShapeError(
            "vmap: a tensor without axes has no rows", got=x.shape, try_="in_dims=None for it"
        )
    return x.movedim(axis, 0)


def _arranged(rows: Rows, found: Any, out_dims: Dims) -> tuple[Any, list[Tensor], list[Any]]:
    """What a function gave for all rows: how it is built, the tensors, and where their rows are."""
    flat = flatten(found, "vmap")
    if flat.values or flat.variables or not flat.tensors:
        raise DTypeError("vmap: the function gave something else than tensors", got=describe(found))
    outputs: list[Any] = list(flat.tensors)
    tensors: list[Tensor] = []
    ends: list[int | None] = []
    axes = _axes(out_dims, found, "out_dims")
    for (x, has), axis in zip(rows.results(outputs), axes, strict=True):
        if axis is None:
            if has:
                raise UserError(
                    "vmap: out_dims is None for what differs from row to row", got=f"{out_dims}"
                )
            tensors.append(x)
            ends.append(None)
            continue
        whole = rows.all_rows(x, has)
        ends.append(whole._axis(axis, "vmap: out_dims"))
        tensors.append(whole.movedim(0, axis))
    return flat.tree, tensors, ends


def _axes(dims: Dims, value: Any, what: str) -> list[int | None]:
    """The axis of each tensor in `value`, in the order in which `flatten` finds them."""
    if isinstance(value, Tensor):
        if not isinstance(dims, int | None) or isinstance(dims, bool):
            raise UserError(f"vmap: {what} is no axis", got=dims, expected="a number or None")
        return [dims]
    if isinstance(value, list | tuple | dict):
        items = list(value.values()) if isinstance(value, dict) else list(value)
        if isinstance(dims, int | None):
            return [axis for item in items for axis in _axes(dims, item, what)]
        if isinstance(value, dict):
            if not isinstance(dims, dict) or dims.keys() != value.keys():
                raise _unlike(dims, value, what)
            each = [dims[key] for key in value]
        else:
            if not isinstance(dims, list | tuple) or len(dims) != len(items):
                raise _unlike(dims, value, what)
            each = list(dims)
        pairs = zip(each, items, strict=True)
        return [axis for one, item in pairs for axis in _axes(one, item, what)]
    if dims is not None and what == "in_dims":
        raise DTypeError(
            "vmap: something that is no tensor has an axis of rows",
            got=describe(value),
            try_="in_dims=None for it",
        )
    return []


def _unlike(dims: Dims, value: Any, what: str) -> UserError:
    return UserError(
        f"vmap: {what} is built in another way than what it is for",
        got=f"{dims!r} for {describe(value)}",
        expected="a number or None for all, or one for each",
    )
