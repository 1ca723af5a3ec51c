"""What `from tinygrad.helpers import ...` gives: small functions over sequences, numbers, text."""

from __future__ import annotations

import contextlib
import ctypes
import decimal
import functools
import gc
import getpass
import operator
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from tilework import errors
from tilework.compat.tinygrad.counters import GlobalCounters
from tilework.compat.tinygrad.flags import FLAGS, Context, ContextVar, getenv
from tilework.compat.tinygrad.progress import Profiling, Timing, tqdm, trange
from tilework.tensor.download import fetch

T = TypeVar("T")
U = TypeVar("U")

START_TIME: Final = time.perf_counter()
OSX: Final = sys.platform == "darwin"
WIN: Final = sys.platform == "win32"

# --- sequences -------------------------------------------------------------------------------


def prod(x: Iterable[Any]) -> Any:
    """The product; 1 of nothing."""
    return functools.reduce(operator.mul, x, 1)


def dedup(x: Iterable[T]) -> list[T]:
    """The first of each group of equals, in order."""
    return list(dict.fromkeys(x))


def argfix(*x: Any) -> tuple[Any, ...]:
    """Arguments given one by one, or as one list or tuple, as a tuple.

    Raises:
        UserError: there is something beside the list.
    """
    if x and isinstance(x[0], list | tuple):
        if len(x) != 1:
            raise errors.UserError("argfix: a sequence and something else", got=f"{x}")
        return tuple(x[0])
    return x


def argsort(x: Any) -> Any:
    """The positions that sort a list or tuple, in the same kind of container."""
    return type(x)(sorted(range(len(x)), key=x.__getitem__))


def all_same(items: Sequence[Any]) -> bool:
    """Whether all are equal."""
    return all(item == items[0] for item in items)


def all_int(t: Sequence[Any]) -> bool:
    """Whether all are Python integers."""
    return all(isinstance(item, int) for item in t)


def get_shape(x: Any) -> tuple[int, ...]:
    """The shape of nested sequences.

    Raises:
        ShapeError: their lengths differ.
    """
    if not hasattr(x, "__len__") or isinstance(x, str) or getattr(x, "shape", None) == ():
        return ()
    inner = [get_shape(each) for each in x]
    if not all_same(inner):
        raise errors.ShapeError("get_shape: the lengths differ", got=f"{inner}")
    return (len(inner), *(inner[0] if inner else ()))


def flatten(l: Iterable[Iterable[T]]) -> list[T]:  # noqa: E741  # the name that programs may use
    """The items of the items."""
    return [item for part in l for item in part]


def fully_flatten(l: Any) -> list[Any]:  # noqa: E741  # the name that programs may use
    """The leaves of nested sequences."""
    if not hasattr(l, "__len__") or not hasattr(l, "__getitem__") or isinstance(l, str):
        return [l]
    if getattr(l, "shape", None) == ():
        return [l[()]]
    return [leaf for part in l for leaf in fully_flatten(part)]


def flat_to_grouped(padding: Sequence[T]) -> tuple[tuple[T, T], ...]:
    """Counts in PyTorch's order (the last axis first) as pairs, the first axis first."""
    pairs = [(padding[i], padding[i + 1]) for i in range(0, len(padding) - 1, 2)]
    return tuple(reversed(pairs))


def make_tuple(x: int | Sequence[int], cnt: int) -> tuple[int, ...]:
    """A number repeated, or a sequence as a tuple."""
    return (x,) * cnt if isinstance(x, int) else tuple(x)


def to_tuple(x: Any) -> tuple[Any, ...]:
    """A tuple as it is, anything else as a tuple of one."""
    return x if isinstance(x, tuple) else (x,)


def merge_dicts(ds: Iterable[Mapping[T, U]]) -> dict[T, U]:
    """One dictionary of all.

    Raises:
        UserError: a key has two values.
    """
    found: dict[T, U] = {}
    for each in ds:
        for key, value in each.items():
            if found.setdefault(key, value) != value:
                raise errors.UserError("merge_dicts: a key has two values", got=f"{key!r}")
    return found


def partition(itr: Iterable[T], fxn: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """The items for which `fxn` holds, and the others."""
    found: tuple[list[T], list[T]] = ([], [])
    for item in itr:
        found[0 if fxn(item) else 1].append(item)
    return found


def unwrap(x: T | None) -> T:
    """`x`, which is not None.

    Raises:
        UserError: it is.
    """
    if x is None:
        raise errors.UserError("unwrap: this is None")
    return x


def get_single_element(x: Sequence[T]) -> T:
    """The only item.

    Raises:
        UserError: there is not exactly one.
    """
    if len(x) != 1:
        raise errors.UserError("get_single_element: there is not exactly one", got=f"{x}")
    return x[0]


def get_child(obj: Any, key: str) -> Any:
    """What a path of attributes, keys and positions, joined by dots, leads to."""
    for part in key.split("."):
        if part.isnumeric():
            obj = obj[int(part)]
        else:
            obj = obj[part] if isinstance(obj, Mapping) else getattr(obj, part)
    return obj


def strides_for_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides; 0 for axes of size 1."""
    found: list[int] = []
    step = 1
    for size in reversed(shape):
        found.insert(0, 0 if size == 1 else step)
        step *= size
    return tuple(found)


class count:
    """Numbers from `start` on."""

    def __init__(self, start: int = 0, step: int = 1) -> None:
        self.n = start
        self.step = step

    def __next__(self) -> int:
        """The next number."""
        found = self.n
        self.n += self.step
        return found


# --- numbers ---------------------------------------------------------------------------------


def ceildiv(num: Any, amt: Any) -> Any:
    """The quotient rounded up."""
    found = -(num // -amt)
    return int(found) if isinstance(found, float) else found


def round_up(num: int, amt: int) -> int:
    """The next multiple of `amt` that is not below `num`."""
    return -(-num // amt) * amt


def round_down(num: int, amt: int) -> int:
    """The last multiple of `amt` that is not above `num`."""
    return num // amt * amt


def next_power2(x: int) -> int:
    """The next power of two that is not below `x`."""
    return 1 if x <= 1 else 1 << (x - 1).bit_length()


def cdiv(x: int, y: int) -> int:
    """The quotient cut towards zero, as in C; 0 by 0."""
    if y == 0:
        return 0
    quotient = abs(x) // abs(y)
    return -quotient if (x < 0) != (y < 0) else quotient


def cmod(x: int, y: int) -> int:
    """The remainder of `cdiv`."""
    return x - cdiv(x, y) * y


def floordiv(x: int, y: int) -> int:
    """The quotient rounded down; 0 by 0."""
    return x // y if y else 0


def floormod(x: int, y: int) -> int:
    """The remainder of `floordiv`."""
    return x - floordiv(x, y) * y


def lo32(x: Any) -> Any:
    """The low 32 bits."""
    return x & 0xFFFFFFFF


def hi32(x: Any) -> Any:
    """What is above the low 32 bits."""
    return x >> 32


def data64(data: Any) -> tuple[Any, Any]:
    """The high and the low half of 64 bits."""
    return hi32(data), lo32(data)


def data64_le(data: Any) -> tuple[Any, Any]:
    """The low and the high half of 64 bits."""
    return lo32(data), hi32(data)


def getbits(value: int, start: int, end: int) -> int:
    """The bits from `start` to `end`, both included."""
    return (value >> start) & ((1 << (end - start + 1)) - 1)


def i2u(bits: int, value: int) -> int:
    """A signed integer of so many bits, read as unsigned."""
    return value % (1 << bits)


def polyN(x: Any, p: Sequence[float]) -> Any:
    """The polynomial with coefficients `p`, the highest first, at `x`."""
    found: Any = 0.0
    for coefficient in p:
        found = found * x + coefficient
    return found


# --- text ------------------------------------------------------------------------------------

_COLORS: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_ESCAPES: Final = re.compile(r"\x1b\[(?:K|[^m]*m)")


def colored(st: Any, color: str | None, background: bool = False) -> str:
    """Text in a colour of the terminal; a name in capitals is the bright one."""
    if color is None or FLAGS["NO_COLOR"]:
        return str(st)
    code = 30 + _COLORS.index(color.lower())
    code += 60 if color == color.upper() else 0
    code += 10 if background else 0
    return f"\x1b[{code}m{st}\x1b[0m"


def colorize_float(x: float) -> str:
    """A ratio in green, yellow or red."""
    color = "green" if x < 0.75 else "red" if x > 1.15 else "yellow"
    return colored(f"{x:7.2f}x", color)


def ansistrip(s: str) -> str:
    """Text without colours."""
    return _ESCAPES.sub("", s)


def ansilen(s: str) -> int:
    """The length without colours."""
    return len(ansistrip(s))


def ansipad(s: str, w: int) -> str:
    """Text with spaces behind it up to a width."""
    return s + " " * max(w - ansilen(s), 0)


def time_to_str(t: float, w: int = 8) -> str:
    """Seconds as text with a fitting unit."""
    if t > 10:
        return f"{t:{w}.2f}s "
    return f"{t * 1e3:{w}.2f}ms" if t > 10e-3 else f"{t * 1e6:{w}.2f}us"


def size_to_str(s: int) -> str:
    """Bytes as text with a fitting unit."""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if s >= unit:
            return f"{s / unit:.2f} {name}"
    return f"{s} B"


def pluralize(st: str, cnt: int) -> str:
    """A count and its noun."""
    return f"{cnt} {st}" if cnt == 1 else f"{cnt} {st}s"


def strip_parens(fst: str) -> str:
    """Text without a pair of brackets around all of it."""
    depth = 0
    for place, character in enumerate(fst):
        depth += (character == "(") - (character == ")")
        if depth == 0 and place < len(fst) - 1:
            return fst
    return fst[1:-1] if fst[:1] == "(" and fst[-1:] == ")" and depth == 0 else fst


def to_function_name(s: str) -> str:
    """Text without colours as a name in C: other characters as their numbers."""
    plain = (character.isascii() and character.isalnum() for character in ansistrip(s))
    pairs = zip(ansistrip(s), plain, strict=True)
    return "".join(each if ok or each == "_" else f"{ord(each):02X}" for each, ok in pairs)


def word_wrap(x: str, wrap: int = 80) -> str:
    """Text in lines of at most so many visible characters, cut anywhere."""
    lines = []
    for line in x.splitlines() if ansilen(x) > wrap else [x]:
        start, place, seen = 0, 0, 0
        while ansilen(line[start:]) > wrap:
            while seen < wrap:
                escape = _ESCAPES.match(line, place)
                place = escape.end() if escape else place + 1
                seen += not escape
            lines.append(line[start:place])
            start, seen = place, 0
        lines.append(line[start:])
    return "\n".join(lines)


# --- the machine -----------------------------------------------------------------------------


def temp(x: str, append_user: bool = False) -> str:
    """The path of a file in the folder for temporary ones."""
    name = f"{x}.{getpass.getuser()}" if append_user else x
    return (Path(tempfile.gettempdir()) / name).as_posix()


def mv_address(mv: memoryview) -> int:
    """Where the memory of a writable memoryview lies."""
    return ctypes.addressof(ctypes.c_char.from_buffer(mv))


def flat_mv(mv: memoryview) -> memoryview:
    """The bytes of a memoryview."""
    return mv if not len(mv) else mv.cast("B")


def pad_bytes(b: bytes, align: int) -> bytes:
    """Bytes with zeros behind them up to a multiple of `align`."""
    return b + bytes(-len(b) % align)


def perf_counter_us() -> decimal.Decimal:
    """The clock for durations in microseconds."""
    return decimal.Decimal(time.perf_counter_ns()) / 1000


def wait_cond(
    cb: Callable[..., T], *args: Any, value: Any = True, timeout_ms: int = 10000, msg: str = ""
) -> T:
    """Call until `value` comes back.

    Raises:
        TimeoutError: it did not within `timeout_ms`.
    """
    end = time.perf_counter() + timeout_ms / 1000
    while (found := cb(*args)) != value:
        if time.perf_counter() > end:
            raise TimeoutError(f"{msg}: {found!r} after {timeout_ms} ms, expected {value!r}")
    return found


class disable_gc(contextlib.ContextDecorator):
    """No collection of garbage inside; around a block or a function."""

    def _recreate_cm(self) -> disable_gc:
        return type(self)()  # calls of a function may lie in each other

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, *exc: object) -> None:
        if self._was_on:
            gc.enable()


def stderr_log(msg: str) -> None:
    """Write to standard error."""
    sys.stderr.write(msg)
    sys.stderr.flush()


#: The flags are names of this module too; the type checker need not know each of them.
globals().update(FLAGS)
CI: Final = bool(getenv("CI", ""))

__all__ = [
    "CI", "OSX", "START_TIME", "WIN", "Context", "ContextVar", "GlobalCounters", "Profiling",
    "Timing", "all_int", "all_same", "ansilen", "ansipad", "ansistrip", "argfix", "argsort",
    "cdiv", "ceildiv", "cmod", "colored", "colorize_float", "count", "data64", "data64_le",
    "dedup", "disable_gc", "fetch", "flat_mv", "flat_to_grouped", "flatten", "floordiv", "floormod",
    "fully_flatten", "get_child", "get_shape", "get_single_element", "getbits", "getenv", "hi32",
    "i2u", "lo32", "make_tuple",
    "merge_dicts", "mv_address", "next_power2", "pad_bytes", "partition",
    "perf_counter_us", "pluralize", "polyN", "prod",
    "round_down", "round_up", "size_to_str", "stderr_log", "strides_for_shape", "strip_parens",
    "temp", "time_to_str", "to_function_name", "to_tuple", "tqdm", "trange", "unwrap", "wait_cond",
    "word_wrap",
    *FLAGS,
]  # fmt: skip
