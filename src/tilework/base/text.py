"""Words and numbers for messages: nearest names, sizes, durations."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tilework.base.late import late_module

if TYPE_CHECKING:
    import difflib
else:
    difflib = late_module("difflib")

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_BINARY_UNITS = {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
_SIZE = re.compile(r"\s*(\d[\d_]*(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that looks most like `name`, or None if none is close.

    Example:
        >>> nearest("chache_dir", ["cache_dir", "dev"])
        'cache_dir'
    """
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def format_bytes(size_bytes: int) -> str:
    """Return a size in the largest binary unit that leaves a number of at least one.

    Example:
        >>> format_bytes(1536), format_bytes(7)
        ('1.5 KiB', '7 B')
    """
    value = float(size_bytes)
    if abs(value) < 1024:
        return f"{size_bytes} B"
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if abs(value) < 1024:
            return f"{value:.4g} {unit}"
    return f"{value / 1024:.4g} TiB"


def parse_bytes(text: str) -> int | None:
    """Return the size that `text` names ("1048576", "64 KiB", "2GB"), or None.

    Example:
        >>> parse_bytes("64 KiB"), parse_bytes("2kB"), parse_bytes("many")
        (65536, 2000, None)
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    number, unit = match.group(1).replace("_", ""), (match.group(2) or "").lower()
    factor = _UNITS.get(unit) or _BINARY_UNITS[unit]
    return int(number) * factor if number.isdigit() else int(float(number) * factor)


def format_seconds(seconds: float) -> str:
    """Return a duration in the unit that reads best.

    Example:
        >>> format_seconds(0.0000021), format_seconds(0.25), format_seconds(75)
        ('2.1 us', '250 ms', '75 s')
    """
    for factor, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        if abs(seconds) * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.4g} s"


def plural(count: int, noun: str) -> str:
    """Return `count` and the noun in its number: "1 kernel", "2 kernels"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def join_names(names: Iterable[str], last: str = "or") -> str:
    """Return names as an English list: "a, b or c"."""
    words = list(names)
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"
