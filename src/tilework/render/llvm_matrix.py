"""LLVM IR for matrix registers: their numbers, their configuration, and the instructions.

The instructions of AMX name their registers, so this module gives out the numbers: to a sum from
its start to its store, to a factor from its load to its last use.  A register keeps the number of
rows and bytes that it was configured with once, at the beginning of the kernel; at its end all of
them are given back, so that they need not be kept when the system switches threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tilework.base.errors import RenderError
from tilework.dtypes import bfloat16, int8, uint8
from tilework.ir.node import Node
from tilework.ir.ops import control
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.matrix_registers import DOT_MATRIX, LOAD_MATRIX
from tilework.ir.ops.memory import AFTER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Define = Callable[[str], str]
    Declare = Callable[..., str]

#: Registers, the bytes of the block that configures them, and where it holds bytes and rows.
_REGISTERS: Final = 8
_BLOCK_BYTES, _WIDTHS_AT, _ROWS_AT = 64, 16, 48
_WORD_BYTES: Final = 4
_PALETTE: Final = 1
#: Instructions by the dtypes of their factors.
_PRODUCTS: Final = {
    (int8, int8): "tdpbssd",
    (int8, uint8): "tdpbsud",
    (uint8, int8): "tdpbusd",
    (uint8, uint8): "tdpbuud",
    (bfloat16, bfloat16): "tdpbf16ps",
}


class Shape(NamedTuple):
    """Rows and words of a row of a register."""

    rows: int
    columns: int


def has_matrices(statements: Sequence[Node]) -> bool:
    """Do statements use matrix registers?"""
    return any(node.op is LOAD_MATRIX for node in statements)


def is_matrix(node: Node) -> bool:
    """Is a value held in a matrix register?"""
    return len(node.type.shape) > 1


class Registers:
    """The registers of one kernel, given out while its statements are gone through in order."""

    def __init__(self, statements: Sequence[Node]) -> None:
        self.shapes: list[Shape | None] = [None] * _REGISTERS
        self.owners: list[Node | None] = [None] * _REGISTERS
        self.held: dict[Node, int] = {}
        self.last = _last_uses(statements)

    def take(self, node: Node) -> int:
        """A free register for a value.

        Raises: RenderError when none is free.
        """
        rows, columns = (extent if isinstance(extent, int) else 0 for extent in node.type.shape)
        shape = Shape(rows, columns)
        free = [at for at, owner in enumerate(self.owners) if owner is None]
        fitting = [at for at in free if self.shapes[at] == shape]
        fitting += [at for at in free if self.shapes[at] is None]
        if not fitting:
            raise RenderError(
                "LlvmRenderer: a kernel holds more matrices than there are registers",
                got=repr(node),
                expected=f"at most {_REGISTERS} at a time",
            )
        number = fitting[0]
        self.shapes[number] = shape
        self.owners[number] = node
        self.held[node] = number
        return number

    def alias(self, node: Node, source: Node) -> int:
        """`node` is what the register of `source` holds from here on."""
        number = self.held[node] = self.held[source]
        return number

    def pass_statement(self, place: int) -> None:
        """Free the registers whose values were used for the last time at this place."""
        for number, owner in enumerate(self.owners):
            if owner is not None and self.last.get(owner, place) <= place:
                self.owners[number] = None

    def configuration(self) -> bytes:
        """The block that LDTILECFG reads."""
        block = bytearray(_BLOCK_BYTES)
        block[0] = _PALETTE
        for number, shape in enumerate(self.shapes):
            if shape is not None:
                width = shape.columns * _WORD_BYTES
                at = _WIDTHS_AT + 2 * number
                block[at : at + 2] = width.to_bytes(2, "little")
                block[_ROWS_AT + number] = shape.rows
        return bytes(block)


def _last_uses(statements: Sequence[Node]) -> dict[Node, int]:
    """Where each matrix is needed for the last time.

    A value that a loop uses and that stands outside of it is needed until the loop ends; what a sum
    becomes in its loop, and after it, is the sum.
    """
    ends: dict[Node, int] = {}
    around: dict[Node, tuple[Node, ...]] = {}
    opened: list[Node] = []
    for place, node in enumerate(statements):
        if node.op is control.END:
            ends[opened.pop()] = place
        around[node] = tuple(opened)
        if node.op is RANGE:
            opened.append(node)
    last: dict[Node, int] = {}
    roots: dict[Node, Node] = {}
    for place, node in enumerate(statements):
        if node.op is DOT_MATRIX:
            roots[node] = roots.get(node.src[2], node.src[2])
        elif node.op is AFTER and is_matrix(node.src[0]):
            roots[node] = roots.get(node.src[0], node.src[0])
        for source in node.src:
            if not is_matrix(source):
                continue
            owner = roots.get(source, source)
            inside = [loop for loop in around[node] if loop not in around.get(owner, ())]
            last[owner] = max(last.get(owner, 0), *[ends[loop] for loop in inside], place)
    return last


def configure(registers: Registers, define: Define, emit: Callable[[str], None]) -> str:
    """Write the configuration to the stack; returns its address."""
    block = registers.configuration()
    place = define(f"alloca [{_BLOCK_BYTES} x i8], align {_BLOCK_BYTES}")
    for at in range(0, _BLOCK_BYTES, 8):
        word = int.from_bytes(block[at : at + 8], "little")
        address = define(f"getelementptr i8, ptr {place}, i64 {at}") if at else place
        emit(f"store i64 {word}, ptr {address}, align 8")
    return place


def start_text(number: int, declare: Declare) -> str:
    """A sum starts from zero."""
    return f"call void @{declare('void', 'llvm.x86.tilezero', 'i8 immarg')}(i8 {number})"


def load_text(node: Node, number: int, pointer: str, declare: Declare) -> str:
    """Rows of memory into a register."""
    name = declare("void", "llvm.x86.tileloadd64", "i8 immarg", "ptr", "i64")
    stride = node.attrs.stride * _WORD_BYTES
    return f"call void @{name}(i8 {number}, ptr {pointer}, i64 {stride})"


def store_text(node: Node, number: int, pointer: str, declare: Declare) -> str:
    """A register into rows of memory."""
    name = declare("void", "llvm.x86.tilestored64", "i8 immarg", "ptr", "i64")
    stride = node.attrs.stride * _WORD_BYTES
    return f"call void @{name}(i8 {number}, ptr {pointer}, i64 {stride})"


def dot_text(node: Node, numbers: tuple[int, int, int], declare: Declare) -> str:
    """Products added to the register of their sum."""
    x, y, z = numbers
    kind = _PRODUCTS[node.attrs.x_dtype, node.attrs.y_dtype]
    name = declare("void", f"llvm.x86.{kind}", *("i8 immarg",) * 3)
    return f"call void @{name}(i8 {z}, i8 {x}, i8 {y})"
