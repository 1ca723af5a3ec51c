"""Loads and stores in CUDA C: of elements, and of neighbours at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.ir.ops.memory import INDEX, LOAD, STORE
from tilework.ir.symbolic import simplify
from tilework.ir.symbolic.simplify import TRUE
from tilework.render.c_family import cuda_warps
from tilework.render.c_family.dialect import type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilework.ir.node import Node, OpDef
    from tilework.render.c_family.cuda import _Function


def memory_type(node: Node) -> str:
    """The element type of a buffer or address, as it is in memory."""
    dtype = node.type.dtype
    return "u8" if dtype.is_bool else type_name(dtype)


def _load(function: _Function, node: Node) -> None:
    gate = node.src[1] if len(node.src) > 1 and node.src[1] is not TRUE else None
    address, dtype = node.src[0], node.type.dtype
    pointer = function[address]
    not_zero = " != 0" if dtype.is_bool else ""
    if not node.type.shape:
        text = f"{pointer}[0]{not_zero}"
        if gate is not None:
            text = f"{function[gate]} ? {text} : ({type_name(dtype)})0"
        function.names[node] = function.define(type_name(dtype), text)
        return
    lanes = node.type.lanes
    if node in function.moved:
        cuda_warps.load_words(function, node, gate)
        return
    is_masked = gate is not None and bool(gate.type.shape)
    if gate is not None and is_masked and not _starts_whole(address, lanes):
        function.vectors[node] = [
            function.define(type_name(dtype), f"{on} ? {pointer}[{lane}]{not_zero} :"
                         f" ({type_name(dtype)})0")
            for lane, on in enumerate(function.lanes(gate))
        ]  # fmt: skip
        return
    name = function.fresh()
    kind = f"pack<{memory_type(node)}, {lanes}>"
    loaded = f"load_pack<{function.pack(address, lanes)}>({pointer})"
    if gate is None:
        function.emit(f"const {kind} {name} = {loaded};")
    elif is_masked:
        function.emit(f"{kind} {name} = {{}};")
        function.emit(f"if ({' && '.join(function.lanes(gate))}) {name} = {loaded};")
        ones = [f"if ({on}) {name}.e[{lane}] = {pointer}[{lane}];"
                for lane, on in enumerate(function.lanes(gate))]  # fmt: skip
        function.emit(f"else {{ {' '.join(ones)} }}")
    else:
        function.emit(f"{kind} {name} = {{}};")
        function.emit(f"if ({function[gate]}) {name} = {loaded};")
    function.vectors[node] = [f"({name}.e[{lane}]{not_zero})" for lane in range(lanes)]


def _store(function: _Function, node: Node) -> None:
    address, value = node.src[0], node.src[1]
    gate = node.src[2] if len(node.src) > 2 and node.src[2] is not TRUE else None
    pointer = function[address]
    if not value.type.shape:
        guard = "" if gate is None else f"if ({function[gate]}) "
        function.emit(f"{guard}{pointer}[0] = {function[value]};")
        return
    if value in function.moved:
        cuda_warps.store_words(function, node, gate)
        return
    elements = function.lanes(value)
    if gate is not None and gate.type.shape:
        pairs = enumerate(zip(function.lanes(gate), elements, strict=True))
        ones = [f"if ({on}) {pointer}[{lane}] = {text};" for lane, (on, text) in pairs]
        if not _starts_whole(address, len(elements)):
            for line in ones:
                function.emit(line)
            return
        _store_pack(function, f"if ({' && '.join(function.lanes(gate))}) ", address, elements)
        function.emit(f"else {{ {' '.join(ones)} }}")
        return
    _store_pack(function, "" if gate is None else f"if ({function[gate]}) ", address, elements)


def _store_pack(function: _Function, guard: str, address: Node, elements: list[str]) -> None:
    kind = f"pack<{memory_type(address)}, {len(elements)}>"
    stored = f"{kind}{{{{{', '.join(elements)}}}}}"
    move = f"store_pack<{function.pack(address, len(elements))}>"
    function.emit(f"{guard}{move}({function[address]}, {stored});")


def _starts_whole(address: Node, lanes: int) -> bool:
    """Do vectors at an address start at multiples of their lanes in memory?"""
    constant, total = simplify.terms(address.src[1]) if address.op is INDEX else (1, {})
    return constant % lanes == 0 and all(factor % lanes == 0 for factor in total.values())


STATEMENTS: Final[Mapping[OpDef, Callable[[_Function, Node], None]]] = {
    LOAD: _load,
    STORE: _store,
}
