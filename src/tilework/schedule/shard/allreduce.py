"""Folding one value of each device into one that all have: naive, ring and all-to-all.

    choice = choose(size_bytes=4 << 20, devices=8)
    print(choice.explain())

*naive*: each device gets the values of all and folds them: one round of copies, the most bytes.
*all2all*: device i gets chunk i of all values, folds it, and sends it to all.  *ring*: chunk i goes
round once from device to device while it is folded, and round once more with the result; each
device moves 2 (n - 1) / n of the bytes, to one neighbour alone.  *library*: whoever the devices
have for it does all of it in one step, where the devices say that there is somebody.

The order in which values are added is part of what a run means: naive and all2all fold the parts in
the order in which they lie along the tensor; chunk i of a ring begins with part i and goes on in
that order, with part 0 after the last; a library has an order of its own.  All devices get the same
bits, since each chunk is folded once, or in one order.  With the setting `deterministic` no sum of
rounded values is made of parts: what is summed is gathered, and each device does what one alone
would do.

The dtype is the one that the fold accumulates in (float32 for narrower floats): it is rounded to a
narrower one after the devices have met, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final, Literal

from tilework.base.errors import InternalError, UserError
from tilework.base.records import dataclass
from tilework.ir.fold import combine
from tilework.ir.node import make
from tilework.ir.ops import tensor
from tilework.schedule.shard import spec
from tilework.schedule.shard.transfer import assemble

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.ir.ops.tensor import Fold

Algorithm = Literal["naive", "ring", "all2all", "library"]
#: Those that are written here.
ALGORITHMS: Final[tuple[Algorithm, ...]] = ("naive", "ring", "all2all")

#: (from how many bytes on, algorithm) by how devices are connected; the last row that fits counts.
#: `host` is measured (docs/several-devices.md has the times): in the memory of one host a copy
#: costs as much as the kernel that reads it, and a ring's rounds save nothing.  `links` is an
#: estimate: between cards the ring should win once its rounds are hidden by the bytes.  So is
#: `processes`, that is cards of several, where each copy is a library's or goes through the host.
THRESHOLDS: Final[dict[str, tuple[tuple[int, Algorithm], ...]]] = {
    "host": ((0, "naive"), (1 << 18, "all2all")),
    "links": ((0, "naive"), (1 << 16, "all2all"), (1 << 22, "ring")),
    "processes": ((0, "naive"), (1 << 16, "all2all"), (1 << 22, "ring")),
}
#: From how many bytes on a library is asked instead, where there is one.
LIBRARY_FROM: Final[dict[str, int]] = {"links": 1 << 16, "processes": 0}
#: Where a kernel reads another device's memory, which two devices do sooner than a library.
READ_IN_PLACE: Final = frozenset({"links"})


@dataclass(frozen=True, slots=True)
class Choice:
    """An algorithm, and what spoke for it."""

    algorithm: Algorithm
    devices: int
    size_bytes: int
    topology: str
    reason: str

    def sent_bytes(self) -> int:
        """What all devices together send."""
        return sent_bytes(self.algorithm, self.devices, self.size_bytes)

    def explain(self) -> str:
        """One line for people, with what the others would have sent."""
        others = ", ".join(
            f"{name} {sent_bytes(name, self.devices, self.size_bytes)} B" for name in ALGORITHMS
        )
        return (
            f"{self.algorithm} over {self.devices} devices ({self.topology}), {self.size_bytes} B"
            f" each: {self.reason}; sent in all: {others}"
        )


def sent_bytes(algorithm: Algorithm, devices: int, size_bytes: int) -> int:
    """What all devices together send to fold `size_bytes` of each."""
    if algorithm == "naive":
        return devices * (devices - 1) * size_bytes
    return 2 * (devices - 1) * size_bytes


def choose(
    size_bytes: int, devices: int, topology: str = "host", *, wanted: str = "auto",
    deterministic: bool = False, has_library: bool = False,
) -> Choice:  # fmt: skip
    """Return which algorithm folds a value of `size_bytes` on each of `devices` devices.

    Args:
        size_bytes: of the value that each device has.
        devices: how many take part.
        topology: a row of `THRESHOLDS`.
        wanted: an algorithm to take in any case, or auto.
        deterministic: the order of additions must not depend on the algorithm.
        has_library: whether the devices have somebody for this fold of this dtype.

    Raises:
        UserError: there is no such topology or algorithm.

    Example:
        >>> choose(1000, 4).algorithm
        'naive'
    """
    rows = THRESHOLDS.get(topology)
    if rows is None:
        raise UserError("allreduce: unknown topology", got=topology, expected=sorted(THRESHOLDS))
    missing = ""
    if wanted == "library":
        if has_library:
            return Choice("library", devices, size_bytes, topology, "asked for")
        missing = "; a library was asked for, and there is none for this fold"
    elif wanted != "auto":
        for algorithm in ALGORITHMS:
            if wanted == algorithm:
                return Choice(algorithm, devices, size_bytes, topology, "asked for")
        known = ("auto", *ALGORITHMS, "library")
        raise UserError("allreduce: unknown algorithm", got=wanted, expected=known)
    least = LIBRARY_FROM.get(topology, size_bytes + 1)
    is_short = devices <= 2 and topology in READ_IN_PLACE
    if has_library and not deterministic and size_bytes >= least and not is_short:
        reason = f"from {least} B on" if least else "the devices have it between processes"
        return Choice("library", devices, size_bytes, topology, reason)
    if devices <= 2:
        reason = f"two devices exchange their values{missing}"
        return Choice("naive", devices, size_bytes, topology, reason)
    found: Algorithm = "naive"
    for least, algorithm in rows:
        if size_bytes >= least and not (deterministic and algorithm == "ring"):
            found, since = algorithm, least
    return Choice(found, devices, size_bytes, topology, f"from {since} B on{missing}")


#: Brings a value from the device of one number to that of another.
Send = Callable[["Node", int, int], "Node"]


def fold_all(
    algorithm: Algorithm, fold: Fold, values: Sequence[Node], send: Send
) -> tuple[Node, ...]:
    """Fold one value of each device, so that each has the result.

    Args:
        algorithm: how.
        fold: what combines two values.
        values: of one shape, in the order in which they are folded; number i is on device i.
        send: makes the copies.
    """
    if len(values) == 1:
        return tuple(values)
    if algorithm == "library":
        raise InternalError("allreduce: a library's fold is no graph of copies")
    if algorithm == "naive":
        return tuple([fold_to(fold, values, send, number) for number in range(len(values))])
    shape: Any = values[0].type.shape
    size = prod(shape)
    count = len(values)
    cuts = spec.even_cuts(size, count)
    flat = [make(tensor.RESHAPE, (value,), tensor.ShapeAttrs((size,))) for value in values]
    chunks: list[list[Node]] = [[] for _ in values]
    for number, (start, stop) in enumerate(cuts):
        if start == stop:
            continue
        pieces = [_chunk(value, start, stop) for value in flat]
        if algorithm == "ring":
            found = _round(fold, pieces, send, number)
        else:
            owned = fold_to(fold, pieces, send, number)
            found = [send(owned, number, other) for other in range(count)]
        for place, chunk in enumerate(found):
            chunks[place].append(chunk)
    places = [(start, stop) for start, stop in cuts if start < stop]
    joined = [_join(row, places, size) for row in chunks] if places else flat
    return tuple([make(tensor.RESHAPE, (value,), tensor.ShapeAttrs(shape)) for value in joined])


def fold_to(fold: Fold, values: Sequence[Node], send: Send, to: int) -> Node:
    """The fold of all values, in their order, on device `to`."""
    total = send(values[0], 0, to)
    for number, value in enumerate(values[1:], 1):
        total = combine(fold, total, send(value, number, to))
    return total


def _round(fold: Fold, pieces: Sequence[Node], send: Send, first: int) -> list[Node]:
    """One chunk around the ring: folded on the first round, handed on in the second."""
    count = len(pieces)
    total, place = pieces[first], first
    for _ in range(count - 1):
        following = (place + 1) % count
        # The chunk stays whole on each device, so that a copy of it is all that moves.
        total = combine(fold, send(total, place, following), pieces[following])
        total = make(tensor.CONTIGUOUS, (total,), None)
        place = following
    found: list[Any] = [None] * count
    found[place] = total
    for _ in range(count - 1):
        following = (place + 1) % count
        found[following] = send(found[place], place, following)
        place = following
    return found


def _chunk(value: Node, start: int, stop: int) -> Node:
    return make(tensor.SHRINK, (value,), tensor.ShrinkAttrs(((start, stop, 1),)))


def _join(chunks: Sequence[Node], cuts: Sequence[tuple[int, int]], size: int) -> Node:
    """Chunks at their places in a vector."""
    pieces = [(chunk, (cut,)) for chunk, cut in zip(chunks, cuts, strict=True)]
    return assemble(pieces, ((0, size),), (size,))
