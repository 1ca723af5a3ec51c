"""LINEAR -> C for the compilers of a CPU (Clang or GCC, with their vector extensions).

The function is `void name(void **buffers, int64_t *variables, int64_t begin, int64_t end,
unsigned char *scratch)`.  Every statement becomes one line that names its value; accumulators are
variables.  Memory is read through types that may alias and need no alignment at all; where a
gate is false nothing is read or written, lane by lane.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from tilework.base.errors import RenderError
from tilework.ir.ops import control, math
from tilework.ir.ops.index import LANES, RANGE, VARIABLE, Unit
from tilework.ir.ops.memory import AFTER, FETCH, INDEX, LOAD, PARAM, SINK, STORE
from tilework.ir.ops.program import FAULT_IF
from tilework.render.base import cannot_render, check_gate, check_input, gate_of, locality
from tilework.render.c_family import vector_helpers, vectors
from tilework.render.c_family.dialect import CFamily, Dialect, Emit, literal, type_name
from tilework.render.c_family.prelude import PRELUDE, half_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.ir.lowered import LoweredKernel
    from tilework.ir.node import Node, OpDef

DIALECT = Dialect(
    kernel="void",
    arguments=(
        "(void **buffers, int64_t *variables, int64_t begin, int64_t end, unsigned char *scratch)"
    ),
    prelude=PRELUDE,
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_TYPE = re.compile(r"(?<![A-Za-z0-9])([fiub])(8|16|32|64)x(\d+)")
_HELPER = re.compile(r"\b([a-z]+(?:_[a-z]+)?)_([fiub]\d+)x(\d+)\(")
_SATURATE = re.compile(r"\bsaturate_(f\d+)_([iu]\d+)_x(\d+)\(")
_HALF = re.compile(r"\b(half_to_float|float_to_half)_x(\d+)\(")


class ClangRenderer:
    """C11 with vector extensions; the flags of `toolchain/clang.py` forbid contraction."""

    name: ClassVar[str] = "ClangRenderer"
    dialect: ClassVar[Dialect] = DIALECT
    emitters: ClassVar[Mapping[OpDef, Emit]] = CFamily.emitters
    vector_emitters: ClassVar[Mapping[OpDef, Emit]] = vectors.EMITTERS

    def render(self, kernel: LoweredKernel) -> str:
        """The source text of a kernel.

        Raises: VerifyError for statements that are not legal; RenderError for a node without text.
        """
        check_input(kernel)
        if not _NAME.fullmatch(kernel.name):
            raise RenderError("ClangRenderer: the kernel's name is no identifier", got=kernel.name)
        body = _Function(self, kernel).text()
        head = f"{self.dialect.kernel} {kernel.name}{self.dialect.arguments}"
        helpers = _helpers_of(body)
        types = _types_of(helpers + body)
        return f"{self.dialect.prelude}{types}{helpers}{head} {{\n{body}}}\n"


def _helpers_of(body: str) -> str:
    """The definitions of the helper functions that a text calls, sorted by name."""
    found: dict[str, str] = {}
    for name, element, lanes in _HELPER.findall(body):
        make = vector_helpers.HELPERS.get(name)
        if make is not None:
            found[f"{name}_{element}x{lanes}"] = make(name, element, int(lanes))
    for source, target, lanes in _SATURATE.findall(body):
        key = f"saturate_{source}_{target}_x{lanes}"
        found[key] = vector_helpers.saturate(source, target, int(lanes))
    for name, lanes in _HALF.findall(body):
        found[f"{name}_x{lanes}"] = half_vectors(name, int(lanes))
    return "".join(found[key] for key in sorted(found))


def _types_of(text: str) -> str:
    """The vector types that a text names: values, and what they are in memory."""
    lines = []
    for kind, bits, lanes in sorted(set(_TYPE.findall(text))):
        element, size = f"{kind}{bits}", int(bits) // 8 * int(lanes)
        attributes = f"vector_size({size})"
        lines.append(f"typedef {element} {element}x{lanes} __attribute__(({attributes}));\n")
        lines.append(
            f"typedef {element} {element}x{lanes}m"
            f" __attribute__(({attributes}, aligned(1), may_alias));\n"
        )
    return "".join(lines)


class _Names(dict["Node", str]):
    """Names of values; those of literals and arguments are made when they are asked for."""

    def __init__(self, kernel: LoweredKernel) -> None:
        super().__init__()
        self.kernel = kernel

    def __missing__(self, node: Node) -> str:
        text = self._leaf(node)
        self[node] = text
        return text

    def _leaf(self, node: Node) -> str:
        attrs = node.attrs
        if node.op is math.CONST:
            text = literal(attrs.bits, attrs.dtype)
            if node.type.shape:
                return vectors.splat(text, attrs.dtype, vectors.lanes_of(node))
            return text
        if node.op is PARAM:
            return f"buffers[{attrs.slot}]"
        if node.op is control.ALLOCATE:
            return f"(scratch + {attrs.offset_bytes})"
        if node.op is VARIABLE:
            return f"variables[{1 + self.kernel.variables.index(attrs.name)}]"
        if node.op is LANES:
            steps = ", ".join(str(lane) for lane in range(attrs.lanes))
            return f"(i64x{attrs.lanes}){{{steps}}}"
        raise cannot_render(ClangRenderer.name, node)


class _Function:
    """The body of one kernel while it is written."""

    def __init__(self, renderer: ClangRenderer, kernel: LoweredKernel) -> None:
        self.renderer = renderer
        self.kernel = kernel
        self.names = _Names(kernel)
        self.lines: list[str] = []
        self.depth = 1
        self.counter = 0

    def text(self) -> str:
        self._bases()
        for node in self.kernel.linear.src:
            start = len(self.lines)
            self._statement(node)
            gate = gate_of(node)
            if gate is not None:
                check_gate(self.renderer.name, node, self.names[gate], self.lines[start:])
        return "".join(self.lines)

    def _bases(self) -> None:
        """Read the addresses of the buffers and the variables once."""
        leaves: dict[Node, None] = {}
        for statement in self.kernel.linear.src:
            for source in statement.src:
                if source.op is PARAM or source.op is VARIABLE:
                    leaves[source] = None
        for node in sorted(leaves, key=lambda leaf: self.names[leaf]):
            kind = f"{_memory_type(node)} *" if node.op is PARAM else "int64_t "
            name = self._fresh()
            self._emit(f"{kind}const {name} = {self.names[node]};")
            self.names[node] = name

    def _fresh(self) -> str:
        self.counter += 1
        return f"v{self.counter}"

    def _emit(self, line: str) -> None:
        self.lines.append(f"{'  ' * self.depth}{line}\n")

    def _define(self, node: Node, text: str) -> None:
        name = self._fresh()
        self._emit(f"const {_value_type(node)} {name} = {text};")
        self.names[node] = name

    # ---- statements

    def _statement(self, node: Node) -> None:
        handler = _STATEMENTS.get(node.op)
        if handler is not None:
            handler(self, node)
        elif node.type.shape or (node.src and node.src[0].type.shape):
            self._vector(node)
        else:
            emitter = self.renderer.emitters.get(node.op)
            if emitter is None:
                raise cannot_render(self.renderer.name, node)
            self._define(node, emitter(node, self.names))

    def _vector(self, node: Node) -> None:
        emitter = self.renderer.vector_emitters.get(node.op)
        if emitter is None:
            raise cannot_render(self.renderer.name, node)
        compares = node.op in vectors.COMPARISONS
        if compares and node.src[0].type.dtype.is_bool:
            raise cannot_render(self.renderer.name, node)
        if compares:
            name = self._fresh()
            self.names[node] = name
            wide = f"i{node.src[0].type.dtype.bits}x{vectors.lanes_of(node)}"
            text = vectors.wide_comparison(node, self.names)
            self._emit(f"const {wide} {vectors.raw_mask(name)} = {text};")
            self._emit(f"const {_value_type(node)} {name} = {emitter(node, self.names)};")
        else:
            self._define(node, emitter(node, self.names))

    def _open(self, node: Node) -> None:
        name = self._fresh()
        if node.attrs.unit is Unit.THREAD:
            first, stop = "begin", "end"
        elif node.attrs.unit is Unit.LOOP:
            first, stop = "0", self.names[node.src[0]]
        else:
            raise cannot_render(self.renderer.name, node)
        self._emit(f"for (int64_t {name} = {first}; {name} < {stop}; {name}++) {{")
        self.names[node] = name
        self.depth += 1

    def _close(self, node: Node) -> None:
        self.depth -= 1
        self._emit("}")

    def _if(self, node: Node) -> None:
        self._emit(f"if ({self.names[node.src[0]]}) {{")
        self.depth += 1

    def _accumulator(self, node: Node) -> None:
        name = self._fresh()
        self._emit(f"{_value_type(node)} {name} = {self.names[node.src[0]]};")
        self.names[node] = name

    def _accumulate(self, node: Node) -> None:
        self._emit(f"{self.names[node.src[0]]} = {self.names[node.src[1]]};")

    def _after(self, node: Node) -> None:
        """The value of an accumulator at this point; effects need no text."""
        if node.src[0].op is control.ACCUMULATOR:
            self._define(node, self.names[node.src[0]])

    def _nothing(self, node: Node) -> None:
        """A set of effects, which have been written."""

    # ---- memory

    def _index(self, node: Node) -> None:
        base, offset = (self.names[source] for source in node.src)
        kind = _memory_type(node)
        if node.src[0].op is control.ALLOCATE:
            base = f"({kind} *){base}"
        if node.src[1].type.shape:  # what reads or writes there takes the offsets, too
            self.names[node] = base
            return
        name = self._fresh()
        self._emit(f"{kind} *const {name} = {base} + {offset};")
        self.names[node] = name

    def _load(self, node: Node) -> None:
        gate = gate_of(node)
        pointer = self.names[node.src[0]]
        dtype = node.type.dtype
        if not node.type.shape:
            text = f"{pointer}[0]"
            if gate is not None:
                text = f"{self.names[gate]} ? {text} : 0"
            self._define(node, f"({text}) != 0" if dtype.is_bool else text)
            return
        if node.src[0].type.shape:
            kind = f"{type_name(dtype)}x{node.type.shape[0]}"
            self._define(node, f"gather_{kind}({pointer}, {self._places(node, gate)})")
            return
        if node.attrs.ahead:
            # As a number: beyond the end of memory there may be no pointer, but a hint.
            place = f"(unsigned long){pointer} + {node.attrs.ahead}"
            self._emit(
                f"__builtin_prefetch((const void *)({place}), 0, {locality(node.attrs.ahead)});"
            )
        element = "u8" if dtype.is_bool else type_name(dtype)
        kind = f"{element}x{node.type.shape[0]}"
        text = f"*(const {kind}m *){pointer}"
        if gate is not None and gate.type.shape:
            text = f"masked_load_{kind}({pointer}, {self.names[gate]})"
        elif gate is not None:
            text = f"{self.names[gate]} ? ({kind}){text} : ({kind}){{0}}"
        if dtype.is_bool:
            text = f"({_value_type(node)})(({text}) != 0)"
        self._define(node, text)

    def _store(self, node: Node) -> None:
        target, value = node.src[0], node.src[1]
        gate = gate_of(node)
        pointer, text = self.names[target], self.names[value]
        dtype = value.type.dtype
        guard = ""
        if not value.type.shape:
            line = f"{pointer}[0] = {text};"
        else:
            element = "u8" if dtype.is_bool else type_name(dtype)
            kind = f"{element}x{value.type.shape[0]}"
            text = f"({kind})({text} & 1)" if dtype.is_bool else text
            line = f"*({kind}m *){pointer} = {text};"
            if target.type.shape:
                self._emit(f"scatter_{kind}({pointer}, {text}, {self._places(node, gate)});")
                return
            if gate is not None and gate.type.shape:
                line = f"masked_store_{kind}({pointer}, {text}, {self.names[gate]});"
                gate = None
        if gate is not None:
            guard = f"if ({self.names[gate]}) "
        self._emit(guard + line)

    def _places(self, node: Node, gate: Node | None) -> str:
        """The offsets of a vector of addresses, and the lanes that a gate lets through."""
        offsets = node.src[0].src[1]
        lanes = offsets.type.shape[0]
        mask = f"~(b8x{lanes}){{0}}"
        return f"{self.names[offsets]}, {mask if gate is None else self.names[gate]}"

    def _fetch(self, node: Node) -> None:
        ahead = node.attrs.ahead
        place = f"(unsigned long){self.names[node.src[0]]} + {ahead}"
        how = f"{int(node.attrs.to_write)}, {locality(ahead)}"
        self._emit(f"__builtin_prefetch((const void *)({place}), {how});")

    def _fault(self, node: Node) -> None:
        self._emit(
            f"if ({self.names[node.src[0]]}) *(int64_t *)(uintptr_t)variables[0] ="
            f" {int(node.attrs.code)};"
        )


def _value_type(node: Node) -> str:
    return vectors.vector_type(node) if node.type.shape else type_name(node.type.dtype)


def _memory_type(node: Node) -> str:
    """The element type of a buffer or address, as it is in memory."""
    dtype = node.type.dtype
    return "u8m" if dtype.is_bool else f"{type_name(dtype)}m"


_STATEMENTS = {
    RANGE: _Function._open,
    control.END: _Function._close,
    control.IF: _Function._if,
    control.ENDIF: _Function._close,
    control.ACCUMULATOR: _Function._accumulator,
    control.ACCUMULATE: _Function._accumulate,
    AFTER: _Function._after,
    SINK: _Function._nothing,
    INDEX: _Function._index,
    LOAD: _Function._load,
    STORE: _Function._store,
    FETCH: _Function._fetch,
    FAULT_IF: _Function._fault,
}
