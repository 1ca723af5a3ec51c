"""Lanes that a mask chooses: moved together, and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Define = Callable[[str], str]
    Declare = Callable[..., str]


def compressed(define: Define, declare: Declare, suffix: str, x: str, mask: str) -> str:
    """The chosen lanes of a vector, then zeros.

    Args:
        define: Writes an instruction and names its result.
        declare: Declares a function and gives its name.
        suffix: What LLVM calls the type of the vector.
        x: The vector, with its type.
        mask: The mask, with its type.
    """
    kind, mask_kind = x[: x.index(">") + 1], mask[: mask.index(">") + 1]
    name = declare(kind, f"llvm.experimental.vector.compress.{suffix}", kind, mask_kind, kind)
    return define(f"call {kind} @{name}({x}, {mask}, {kind} zeroinitializer)")


def counted(define: Define, declare: Declare, lanes: int, mask: str, bits: int) -> str:
    """How many of `lanes` lanes a mask chooses, modulo 2**bits, as an integer of so many bits."""
    word = define(f"bitcast {mask} to i{lanes}")
    name = declare(f"i{lanes}", f"llvm.ctpop.i{lanes}", f"i{lanes}")
    count = define(f"call i{lanes} @{name}(i{lanes} {word})")
    if bits == lanes:
        return count
    return define(f"{'zext' if bits > lanes else 'trunc'} i{lanes} {count} to i{bits}")
