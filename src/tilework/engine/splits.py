"""Which kernels are split, into packing and the rest or otherwise: decided once, kept on disk.

Deciding lowers a kernel in several ways and compares what each would cost, which takes as long as
compiling it.  A start with warm caches reads the decision, and imports no code generator.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tilework.backends.native import code_cache
from tilework.base import trace
from tilework.base.errors import ModelFileError, TileworkError
from tilework.base.forks import new_lock
from tilework.base.records import dataclass
from tilework.engine.compile import kernel_key
from tilework.ir.node import in_use

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.engine.device import OpenDevice
    from tilework.ir.node import Node

_MOST_KEPT: Final = 1024


@dataclass(frozen=True, slots=True)
class Packing:
    """A kernel that copies a factor into panels.

    Attributes:
        kernel: PARAM 0 is the packed buffer, PARAM i + 1 reads what `sources[i]` names.
        sources: Slots of the kernel that was split.
        size_bytes: Of the packed buffer.
        is_constant: It reads constants alone.
    """

    kernel: Node
    sources: tuple[int, ...]
    size_bytes: int
    is_constant: bool


@dataclass(frozen=True, slots=True)
class Split:
    """A kernel that reads packed factors after its own buffers, and what packs them, in order."""

    kernel: Node
    packs: tuple[Packing, ...]


_kept: Final[dict[str, Split | None]] = {}  # bounded by _MOST_KEPT
_lock: Final = new_lock()
#: What is kept of a kernel that is best as it is.
_AS_IT_IS: Final = b"null"


def find_split(device: OpenDevice, kernel: Node, constants: frozenset[int]) -> Split | None:
    """Return how the compiler of `device` splits a kernel; None where it leaves it as it is.

    Args:
        device: what the kernel runs on.
        kernel: at the KERNEL stage.
        constants: the slots whose contents never change.
    """
    decide = getattr(device.compiler, "split_packing", None)
    if decide is None:
        return None
    key = f"split;{sorted(constants)};{kernel_key(device, kernel)}"
    return _decided(device, key, lambda: decide(kernel, constants))


def find_division(device: OpenDevice, kernel: Node, given: frozenset[int]) -> Split | None:
    """Return the kernels that the compiler of `device` makes of one; None where it keeps it.

    Args:
        device: what the kernel runs on.
        kernel: at the KERNEL stage.
        given: the slots of what comes from outside of the schedule, and is not written in it.
    """
    divide = getattr(device.compiler, "divide", None)
    if divide is None:
        return None
    key = f"divide;{sorted(given)};{kernel_key(device, kernel)}"
    return _decided(device, key, lambda: divide(kernel, given))


def _decided(device: OpenDevice, key: str, decide: Callable[[], Any]) -> Split | None:
    """What was decided before, or is now."""
    with _lock:
        if key in _kept:
            return _kept[key]
    is_cacheable = device.compiler.is_cacheable
    raw = code_cache().get(key) if is_cacheable else None
    split: Split | None = None
    if raw is not None:
        try:
            split = from_bytes(raw)
        except (TileworkError, ValueError, KeyError, TypeError, IndexError) as error:
            trace.warn("prepack", f"a decision on disk cannot be read, and is made again: {error}")
            raw = None
    if raw is None:
        split = _as_split(decide())
        if is_cacheable:
            code_cache().put(key, to_bytes(split))
    with _lock:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[key] = split
    return split


def clear_memory() -> None:
    """Forget the decisions of this process; the disk keeps its own."""
    with _lock:
        _kept.clear()


def _as_split(found: Any) -> Split | None:
    """What `codegen.plan.prepack` gives, without what only the code generator needs."""
    if found is None:
        return None
    packs = tuple(
        Packing(pack.kernel, tuple(pack.sources), pack.size_bytes, pack.is_constant)
        for pack in found.packs
    )
    return Split(found.kernel, packs)


def to_bytes(split: Split | None) -> bytes:
    """A decision as text."""
    from tilework.ir.text import format_nodes  # most starts need no printer

    if split is None:
        return _AS_IT_IS
    head = json.dumps([(pack.sources, pack.size_bytes, pack.is_constant) for pack in split.packs])
    nodes = format_nodes((split.kernel, *(pack.kernel for pack in split.packs)))
    return f"{head}\n{nodes}".encode()


def from_bytes(raw: bytes) -> Split | None:
    """The decision that `to_bytes` wrote.

    Raises:
        ModelFileError: it is malformed (or ValueError, KeyError, TypeError, IndexError).
    """
    from tilework.ir.text import parse_all

    if raw == _AS_IT_IS:
        return None
    line, _, text = raw.decode().partition("\n")
    rows = json.loads(line)
    with in_use():
        kernel, *kernels = parse_all(text)
    if len(rows) != len(kernels):
        raise ModelFileError("prepack: the entry contradicts itself", got=len(kernels))
    packs = tuple(
        Packing(each, tuple(sources), int(size_bytes), bool(is_constant))
        for each, (sources, size_bytes, is_constant) in zip(kernels, rows, strict=True)
    )
    return Split(kernel, packs)
