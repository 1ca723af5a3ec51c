"""Stores past the caches in LLVM IR: two forms of a kernel, and the choice between them.

The machine's instructions for such stores need addresses that are multiples of a line, which the
offsets in an array are; where the array begins is known at a launch alone.  So the kernel's
function looks at the arrays' addresses and calls one of two that differ in these stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tilework.ir.ops.memory import STORE
from tilework.render.llvm_types import ARGUMENTS

if TYPE_CHECKING:
    from tilework.ir.lowered import LoweredKernel
    from tilework.ir.node import Node

_PAST, _PLAIN = ".past", ".plain"


class Form(Protocol):
    """One form of the kernel's function."""

    def definition(self, name: str, linkage: str = "") -> str:
        """Its text under a name."""
        ...

    def declared(self) -> str:
        """What that text refers to."""
        ...


def lines_of(kernel: LoweredKernel) -> dict[int, int]:
    """The arrays, by slot, that are written past the caches, and their lines' bytes."""
    return {
        int(node.src[0].src[0].attrs.slot): node.attrs.past_lines
        for node in kernel.linear.src
        if node.op is STORE and node.attrs is not None and node.attrs.past_lines
    }


def store_text(node: Node, full: str, value: str, pointer: str) -> str:
    """A store past the caches, to an address that is a multiple of its bytes."""
    size = node.src[1].type.lanes * node.src[1].type.dtype.itemsize
    align = min(size & -size, node.attrs.past_lines)
    return f"store {full} {value}, ptr {pointer}, align {align}, !nontemporal !0"


def both_forms(kernel: LoweredKernel, plain: Form, past: Form) -> str:
    """The kernel's function, the two that it calls, and their declarations.

    Stores past the caches are in no order with others, so a fence ends the form that has them.
    """
    functions = plain.definition(kernel.name + _PLAIN, "internal ") + past.definition(
        kernel.name + _PAST, "internal "
    )
    lines = lines_of(kernel)
    text: list[str] = []
    total = "0"
    for number, slot in enumerate(lines):
        text += [
            f"%slot{number} = getelementptr inbounds ptr, ptr %buffers, i64 {slot}",
            f"%array{number} = load ptr, ptr %slot{number}",
            f"%address{number} = ptrtoint ptr %array{number} to i64",
            f"%all{number} = or i64 {total}, %address{number}",
        ]
        total = f"%all{number}"
    text += [
        f"%within = and i64 {total}, {max(lines.values()) - 1}",
        "%begins = icmp eq i64 %within, 0",
        "br i1 %begins, label %past, label %plain",
    ]
    body = "\n".join(f"  {line}" for line in text)
    declared = "\n".join(
        dict.fromkeys((*plain.declared().split("\n"), *past.declared().split("\n")))
    )
    return (
        f"define void @{kernel.name}({ARGUMENTS}) nounwind {{\nentry:\n{body}\npast:\n"
        f"  call void @{kernel.name}{_PAST}({ARGUMENTS})\n  fence seq_cst\n  ret void\nplain:\n"
        f"  call void @{kernel.name}{_PLAIN}({ARGUMENTS})\n  ret void\n}}\n"
        f"{functions}{declared}\n!0 = !{{i32 1}}\n"
    )
