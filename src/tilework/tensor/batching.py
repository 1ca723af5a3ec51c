"""A function of one row as a function of many: what it does, done with the rows beside each other.

The function is called once with rows that stand for all of them and hold nothing (`row_of`).  What
it gives is then made again (`results`), version by version: each op along one axis more, in front,
where something depends on a row, and as it was everywhere else.  So whatever a function does with
tensors can be mapped, gradients and writes too; for each op a rule says how, or a reason why not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import InternalError, ShapeError, UnsupportedError, UserError
from tilework.base.records import replace
from tilework.ir.ops import index, math, memory, multi, program, tensor
from tilework.runtime.group import is_group
from tilework.tensor.random import row_draws
from tilework.tensor.variable import format_dim
from tilework.tensor.version import (
    NO_VIEW,
    Chain,
    CustomGradient,
    Storage,
    Version,
    apply_chain,
    history,
    merge_bindings,
    records_history,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tilework.ir.node import OpDef
    from tilework.tensor.tensor import Tensor

#: (attributes of an op, number of rows) -> its attributes with an axis of rows in front.
Shift = Callable[[Any, int], Any]
#: (rows, attributes, sources, which of them have rows) -> the value, rows first.
Rule = Callable[["Rows", Any, list[Any], list[bool]], Any]

_numbers: Final = itertools.count(1)

#: Ops of one source: what becomes of their attributes.
SHIFTS: Final[dict[OpDef, Shift]] = {
    tensor.RESHAPE: lambda at, rows: tensor.ShapeAttrs((rows, *at.shape)),
    tensor.EXPAND: lambda at, rows: tensor.ShapeAttrs((rows, *at.shape)),
    tensor.PERMUTE: lambda at, rows: tensor.AxesAttrs((0, *[axis + 1 for axis in at.axes])),
    tensor.FLIP: lambda at, rows: tensor.AxesAttrs(tuple([axis + 1 for axis in at.axes])),
    tensor.PAD: lambda at, rows: tensor.PadAttrs(((0, 0), *at.pads)),
    tensor.SHRINK: lambda at, rows: tensor.ShrinkAttrs(((0, rows, 1), *at.bounds)),
    tensor.WINDOW: lambda at, rows: replace(at, axis=at.axis + 1),
    tensor.UNWINDOW: lambda at, rows: replace(at, axis=at.axis + 1),
    tensor.REDUCE: lambda at, rows: replace(at, axes=tuple([axis + 1 for axis in at.axes])),
    tensor.SCAN: lambda at, rows: replace(at, axis=at.axis + 1),
    tensor.SORT: lambda at, rows: replace(at, axis=at.axis + 1),
    tensor.CONTIGUOUS: lambda at, rows: at,
    tensor.DETACH: lambda at, rows: at,
    math.BITCAST: lambda at, rows: at,
}
#: Ops of several sources that are not element by element.
RULES: Final[dict[OpDef, Rule]] = {}
#: Ops that are never applied to a row, and why.
NOT_MAPPED: Final[dict[OpDef, str]] = {
    **dict.fromkeys(
        (math.CONST, tensor.IOTA, memory.BUFFER, memory.PARAM, index.VARIABLE, index.BIND),
        "it has no sources that hold rows",
    ),
    **dict.fromkeys((memory.STORE, memory.SINK, program.CALL), "an effect, not a value"),
    **dict.fromkeys(
        (multi.RESHARD, multi.UNSHARD, multi.ALLREDUCE), "a row is on one device"
    ),
}  # fmt: skip


def mapping_rule(op: OpDef) -> Callable[[Rule], Rule]:
    """Register how an op is applied to many rows."""

    def register(rule: Rule) -> Rule:
        RULES[op] = rule
        return rule

    return register


class Rows:
    """Rows of tensors that a function is applied to, all at once.

    Args:
        count: how many there are.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._known: dict[int, tuple[Version, Tensor]] = {}

    def row_of(self, rows: Tensor) -> Tensor:
        """What stands for one of `rows`, which lie along the first axis."""
        shape, device = rows._dims[1:], rows._storage.version.device
        if is_group(device):
            raise UnsupportedError("vmap: a tensor is on several devices", got=rows.device)
        rows = rows._apply(None)  # what they are now, whatever is written later
        attrs = memory.ParamAttrs(next(_numbers), shape, rows.dtype, device)
        made = type(rows)._from_node(memory.PARAM(attrs=attrs), device, rows._bindings)
        version = made._storage.version
        self._known[id(version)] = (version, rows)
        return made

    def results(self, given: Sequence[Tensor]) -> list[tuple[Tensor, bool]]:
        """Tensors that were computed of rows, with all rows along the first axis.

        Returns:
            Each with whether it depends on a row at all; one that does not is as it was.
        """
        made: dict[int, Tensor | None] = {number: rows for number, (_, rows) in self._known.items()}
        for version in self._order(given):
            if id(version) not in made:
                made[id(version)] = self._made(version, made)
        return [self._seen(x._storage.version, x._chain, made, x) for x in given]

    def all_rows(self, x: Tensor, is_mapped: bool) -> Tensor:
        """The same for each row, if it has none of its own."""
        return x if is_mapped else x.unsqueeze(0).expand(self.count, *x.shape)

    def _order(self, given: Sequence[Tensor]) -> list[Version]:
        """The versions that may depend on a row, sources first."""
        first = min([version.serial for version, _ in self._known.values()], default=0)
        order: list[Version] = []
        seen: set[int] = set()
        stack = [(x._storage.version, False) for x in reversed(given)]
        while stack:
            version, is_done = stack.pop()
            if is_done:
                order.append(version)
            elif id(version) not in seen and version.serial >= first:
                seen.add(id(version))
                stack.append((version, True))
                stack.extend([(each, False) for each in reversed(version.sources)])
        return order

    def _seen(
        self, version: Version, chain: Chain, made: dict[int, Tensor | None], like: Tensor
    ) -> tuple[Tensor, bool]:
        """A version seen through movement ops, and whether it has rows."""
        rows = made.get(id(version))
        if rows is not None:
            for op, attrs in chain:
                rows = rows._seen(op, SHIFTS[op](attrs, self.count))
            return rows, True
        plain = type(like)._over(version)
        if chain:
            node = apply_chain(version.node, chain)
            plain._set(Storage(version), chain, node.type, version.bindings)
        return plain, False

    def _made(self, version: Version, made: dict[int, Tensor | None]) -> Tensor | None:
        """The value of a version for all rows; None if it depends on none."""
        if not any(made.get(id(each)) is not None for each in version.sources):
            return None
        like = next(iter(self._known.values()))[1]
        chains = version.chains or (NO_VIEW,) * len(version.sources)
        place: Chain = NO_VIEW
        if version.op is memory.AFTER:
            place, chains = chains[0], (NO_VIEW, chains[1])
        pairs = [
            self._seen(each, chain, made, like)
            for each, chain in zip(version.sources, chains, strict=True)
        ]
        sources, flags = [x for x, _ in pairs], [is_mapped for _, is_mapped in pairs]
        with history(version.is_tracked and records_history()):
            if version.op is memory.AFTER:
                found = self._written(place, sources, flags)
            else:
                found = self._applied(version.op, version.attrs, sources, flags)
        if version.bindings is not None:
            merged = merge_bindings((found._bindings, version.bindings), "vmap")
            found._bindings = found._storage.version.bindings = merged
        return found

    def _applied(
        self, op: OpDef | None, attrs: Any, sources: list[Tensor], flags: list[bool]
    ) -> Tensor:
        if op is None:
            first = self.all_rows(sources[0], flags[0])
            if not isinstance(attrs, CustomGradient):
                return first._apply(None)
            rule = self._gradient_rule(attrs.rule, flags[1:])
            return first._apply(None, *sources[1:], attrs=CustomGradient(rule))
        if op.elementwise:
            first, *others = [
                self.all_rows(x, is_mapped) for x, is_mapped in zip(sources, flags, strict=True)
            ]
            return first._apply(op, *others, attrs=attrs)
        if op in SHIFTS:
            return sources[0]._apply(op, attrs=SHIFTS[op](attrs, self.count))
        if op in NOT_MAPPED:
            raise UnsupportedError(f"vmap: {op.name} of a row", got=NOT_MAPPED[op])
        rule = RULES.get(op)
        if rule is None:
            raise InternalError(f"vmap: {op.name} has no rule")
        found: Tensor = rule(self, attrs, sources, flags)
        return found

    def _gradient_rule(self, rule: Any, flags: list[bool]) -> Any:
        """A gradient of its own, of all rows: what all rows share gets the sum of theirs."""

        def of_rows(sources: tuple[Tensor, ...], g: Tensor) -> tuple[Tensor | None, ...]:
            given = [
                self.row_of(x) if is_mapped else x
                for x, is_mapped in zip(sources, flags, strict=True)
            ]
            parts = rule(tuple(given), self.row_of(g))
            there = iter(self.results([part for part in parts if part is not None]))
            found: list[Tensor | None] = []
            for part, is_mapped in zip(parts, flags, strict=True):
                if part is None:
                    found.append(None)
                    continue
                rows = self.all_rows(*next(there))
                wide = rows._wide()
                found.append(rows if is_mapped else wide.sum(0).cast(rows.dtype))
            return tuple(found)

        return of_rows

    def _written(self, place: Chain, sources: list[Tensor], flags: list[bool]) -> Tensor:
        """A write into a part of each row."""
        old, value = [
            self.all_rows(x, is_mapped) for x, is_mapped in zip(sources, flags, strict=True)
        ]
        kept = old.clone()
        view = kept
        for op, attrs in place:
            view = view._seen(op, SHIFTS[op](attrs, self.count))
        view._write(value._apply(None))
        return kept


@mapping_rule(tensor.GATHER)
def _gather(rows: Rows, at: Any, sources: list[Tensor], flags: list[bool]) -> Tensor:
    x, *indices = sources
    if not any(flags[1:]):
        return x._apply(tensor.GATHER, *indices, attrs=replace(at, axis=at.axis + 1))
    found = [rows.all_rows(each, has) for each, has in zip(indices, flags[1:], strict=True)]
    if flags[0]:
        # Rows of places: the number of the row is one more index.
        x = x.movedim(0, at.axis)
        found = [found[0]._positions(0), *found]
    return x._apply(tensor.GATHER, *found, attrs=at).movedim(at.axis, 0)


@mapping_rule(tensor.SCATTER)
def _scatter(rows: Rows, at: Any, sources: list[Tensor], flags: list[bool]) -> Tensor:
    pairs = list(zip(sources, flags, strict=True))
    x, updates = [rows.all_rows(each, has) for each, has in pairs[:2]]
    if not any(flags[2:]):
        attrs = replace(at, axis=at.axis + 1)
        return x._apply(tensor.SCATTER, updates, *sources[2:], attrs=attrs)
    indices = [rows.all_rows(each, has) for each, has in pairs[2:]]
    x, updates = x.movedim(0, at.axis), updates.movedim(0, at.axis)
    found = x._apply(tensor.SCATTER, updates, indices[0]._positions(0), *indices, attrs=at)
    return found.movedim(at.axis, 0)


@mapping_rule(tensor.COPY)
def _copy(rows: Rows, at: Any, sources: list[Tensor], flags: list[bool]) -> Tensor:
    return sources[0].to(at.device)


@contextmanager
def drawing(rows: Rows, randomness: str, known: list[Any]) -> Iterator[None]:
    """Say what random numbers the block draws: "error", the "same" or "different" for each row.

    Args:
        rows: what the block is called with.
        randomness: that word.
        known: what the same function drew for other rows, if these are to get the same; it grows.

    Raises:
        UserError: another word.
    """

    def refuse(cls: Any, count: int, device: str) -> Any:
        raise UserError(
            "vmap: the mapped function draws random numbers",
            expected='randomness="different" or "same"',
        )

    def draw(cls: Any, count: int, device: str) -> Any:
        inner = row_draws.set(outer)
        try:
            return cls._words(count, device)
        finally:
            row_draws.reset(inner)

    def draw_once(cls: Any, count: int, device: str) -> Any:
        place = next(places)
        if place == len(known):
            known.append(draw(cls, count, device))
        return known[place]

    def draw_each(cls: Any, count: int, device: str) -> Any:
        words = draw(cls, count * rows.count, device)
        return tuple([rows.row_of(each.reshape(rows.count, count)) for each in words])

    outer, places = row_draws.get(), itertools.count()
    rules: dict[str, Any] = {"error": refuse, "same": draw_once, "different": draw_each}
    if randomness not in rules:
        raise UserError("vmap: unknown randomness", got=randomness, expected=", ".join(rules))
    token = row_draws.set(rules[randomness])
    try:
        yield
    finally:
        row_draws.reset(token)


def count_rows(tensors: Sequence[Tensor]) -> int:
    """How many rows tensors have along their first axes.

    Raises:
        ShapeError: they differ, or the number is not known before the program runs.
    """
    sizes = [x._dims[0] for x in tensors]
    shown = " and ".join([format_dim(size) for size in dict.fromkeys(sizes)])
    numbers = [size for size in sizes if isinstance(size, int)]
    if len(numbers) < len(sizes):
        raise ShapeError(
            "vmap: the number of rows is a variable, which is not known before the program runs",
            got=shown,
            expected="a number",
            try_="rows up to the variable's maximum, of which the result is cut to its value",
        )
    if len(set(numbers)) > 1:
        raise ShapeError(
            "vmap: the mapped axes have different sizes", got=shown, expected="one number"
        )
    return numbers[0]
