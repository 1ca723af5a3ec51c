"""LINEAR -> LLVM IR text (opaque pointers, LLVM 17 and later).

The function is `void @name(ptr %buffers, ptr %variables, i64 %begin, i64 %end, ptr %scratch)`.
Loops carry their counter in a phi; accumulators are allocas that mem2reg turns into registers.
Storage-only floats (bfloat16, fp8) are integers of their width; bool is i1 in registers and i8 in
memory.  No fast-math flag is ever written: order and rounding are those of the statements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tilework.ir.node import Node, OpDef
from tilework.ir.ops import control, math
from tilework.ir.ops.index import LANES, RANGE, VARIABLE, Unit
from tilework.ir.ops.matrix_registers import DOT_MATRIX, LOAD_MATRIX, STORE_MATRIX
from tilework.ir.ops.memory import AFTER, FETCH, INDEX, LOAD, PARAM, SINK, STORE
from tilework.ir.ops.program import FAULT_IF
from tilework.ir.symbolic.bounds import bounds
from tilework.render import llvm_matrix, llvm_past_caches
from tilework.render.base import cannot_render, check_gate, check_input, gate_of, locality
from tilework.render.llvm_expressions import EMITTERS
from tilework.render.llvm_lanes import (
    all_lanes,
    gathered,
    pointers,
    scattered,
)
from tilework.render.llvm_quotients import Divisor, Writer, shared_divisors
from tilework.render.llvm_types import (
    ARGUMENTS,
    alignment,
    is_shifted,
    literal,
    memory_type,
    scalar_suffix,
    scalar_type,
    scalar_zero,
    sums_within_addresses,
    type_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.ir.lowered import LoweredKernel


class LlvmRenderer:
    """LLVM IR for CPUs."""

    name: ClassVar[str] = "LlvmRenderer"

    def render(self, kernel: LoweredKernel) -> str:
        """The text of one function and the declarations that it needs.

        Raises: VerifyError for statements that are not legal; RenderError for a node without text.
        """
        check_input(kernel)
        if llvm_past_caches.lines_of(kernel):
            return llvm_past_caches.both_forms(kernel, _Function(kernel), _Function(kernel, True))
        return _Function(kernel).text()


class _Loop(NamedTuple):
    """An open loop: its range, labels, and the names of the next counter and the bound."""

    range_: Node
    head: str
    latch: str
    following: str
    stop: str
    done: str


class _Function:
    """The text of one kernel while it is written."""

    def __init__(self, kernel: LoweredKernel, may_pass: bool = False) -> None:
        self.kernel = kernel
        #: Whether arrays begin where lines do, so that stores may go past the caches.
        self.may_pass = may_pass
        self.names: dict[Node, str] = {}
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.declarations: dict[str, None] = {}
        self.block = "start"
        self.counter = 0
        self.loops: list[_Loop] = []
        self.conditions: list[str] = []  # where each open IF goes on
        # Without multiply-adds of the machine each would be a call of a library.
        divisors = shared_divisors(kernel.linear.src) if kernel.has_fma else frozenset()
        self.shared_divisors: frozenset[Node] = divisors
        self.divisors: dict[Node, Divisor] = {}
        #: Addresses without their constant parts, in this block.
        self.bases: dict[tuple[Node, Node], str] = {}
        self.matrices: llvm_matrix.Registers | None = None

    def text(self) -> str:
        """The function and its declarations."""
        return f"{self.definition(self.kernel.name)}{self.declared()}\n"

    def declared(self) -> str:
        """What the function refers to, once it is written."""
        return "\n".join(self.declarations)

    def definition(self, name: str, linkage: str = "") -> str:
        """The function under a name."""
        statements = self.kernel.linear.src
        unused = sums_within_addresses(statements)
        if llvm_matrix.has_matrices(statements):
            self.matrices = llvm_matrix.Registers(statements)
        for place, node in enumerate(statements):
            if node in unused:
                continue
            start = len(self.lines)
            self._statement(node)
            if self.matrices is not None:
                self.matrices.pass_statement(place)
            gate = gate_of(node)
            if gate is not None:
                check_gate(LlvmRenderer.name, node, self.value(gate), self.lines[start:])
        if self.matrices is not None:
            self._around_matrices(self.matrices)
        body = "\n".join(f"  {line}" if not line.endswith(":") else line for line in self.lines)
        entry = "\n".join(f"  {line}" for line in self.entry)
        return (
            f"define {linkage}void @{name}({ARGUMENTS}) nounwind {{\nentry:\n{entry}\n"
            f"  br label %start\nstart:\n{body}\n  ret void\n}}\n"
        )

    def _around_matrices(self, registers: llvm_matrix.Registers) -> None:
        """Configure matrix registers before the first statement, and give them back at the end."""

        def define(expression: str) -> str:
            name = self.fresh()
            self.entry.append(f"{name} = {expression}")
            return name

        place = llvm_matrix.configure(registers, define, self.entry.append)
        name = self.declare("void", "llvm.x86.ldtilecfg", "ptr")
        self.entry.append(f"call void @{name}(ptr {place})")
        self.emit(f"call void @{self.declare('void', 'llvm.x86.tilerelease')}()")

    # ---- names

    def fresh(self) -> str:
        self.counter += 1
        return f"%v{self.counter}"

    def label(self) -> str:
        self.counter += 1
        return f"b{self.counter}"

    def emit(self, line: str) -> None:
        self.lines.append(line)

    def define(self, expression: str) -> str:
        name = self.fresh()
        self.emit(f"{name} = {expression}")
        return name

    def begin_block(self, label: str) -> None:
        self.emit(f"{label}:")
        self.block = label
        self.bases.clear()

    def quotients(self) -> Writer:
        return Writer(self.define, self.emit, self.label, self.begin_block, self.declare)

    def declare(self, result: str, name: str, *arguments: str) -> str:
        self.declarations[f"declare {result} @{name}({', '.join(arguments)})"] = None
        return name

    def value(self, node: Node) -> str:
        """The operand text of a node, without its type."""
        found = self.names.get(node)
        if found is not None:
            return found
        op = node.op
        if op is math.CONST:
            text = literal(node.attrs.bits, node.attrs.dtype)
            if node.type.shape:
                scalar = scalar_type(node.attrs.dtype)
                text = f"splat ({scalar} {text})"
            self.names[node] = text
            return text
        if op is PARAM:
            return self._parameter(node)
        if op is control.ALLOCATE:
            return self._at_entry(
                node, f"getelementptr inbounds i8, ptr %scratch, i64 {node.attrs.offset_bytes}"
            )
        if op is LANES:
            lanes = node.attrs.lanes
            text = "<" + ", ".join(f"i64 {i}" for i in range(lanes)) + ">"
            self.names[node] = text
            return text
        if op is VARIABLE:
            return self._variable(node)
        raise cannot_render("LlvmRenderer", node)

    def _at_entry(self, node: Node, expression: str) -> str:
        name = self.fresh()
        self.entry.append(f"{name} = {expression}")
        self.names[node] = name
        return name

    def _parameter(self, node: Node) -> str:
        slot = self.fresh()
        self.entry.append(
            f"{slot} = getelementptr inbounds ptr, ptr %buffers, i64 {node.attrs.slot}"
        )
        return self._at_entry(node, f"load ptr, ptr {slot}")

    def _variable(self, node: Node) -> str:
        position = 1 + self.kernel.variables.index(node.attrs.name)
        slot = self.fresh()
        self.entry.append(f"{slot} = getelementptr inbounds i64, ptr %variables, i64 {position}")
        return self._at_entry(node, f"load i64, ptr {slot}")

    def typed(self, node: Node) -> str:
        return f"{type_of(node)} {self.operand(node)}"

    def operand(self, node: Node) -> str:
        """The text of an operand; an accumulator is read here, where it is used."""
        if node.op is control.ACCUMULATOR:
            return self.define(f"load {type_of(node)}, ptr {self.names[node]}")
        return self.value(node)

    # ---- statements

    def _statement(self, node: Node) -> None:
        statement = STATEMENTS.get(node.op)
        if statement is not None:
            statement(self, node)
            return
        emitter = EMITTERS.get(node.op)
        if emitter is None:
            raise cannot_render("LlvmRenderer", node)
        self.names[node] = emitter(self, node)

    def _accumulate(self, node: Node) -> None:
        if llvm_matrix.is_matrix(node.src[1]):
            return  # the instruction has added to the register
        self.emit(f"store {self.typed(node.src[1])}, ptr {self.names[node.src[0]]}")

    def _after(self, node: Node) -> None:
        """The result of a reduction is read here; other effects have happened already."""
        if self.matrices is not None and llvm_matrix.is_matrix(node.src[0]):
            self.matrices.alias(node, node.src[0])
        elif node.src[0].op is control.ACCUMULATOR:
            self.names[node] = self.operand(node.src[0])

    def _sink(self, node: Node) -> None:
        """The set of effects needs no text."""

    def _accumulator(self, node: Node) -> None:
        if self.matrices is not None and llvm_matrix.is_matrix(node):
            self.emit(llvm_matrix.start_text(self.matrices.take(node), self.declare))
            return
        kind = type_of(node)
        name = self.fresh()
        self.entry.append(f"{name} = alloca {kind}")
        self.names[node] = name
        self.emit(f"store {kind} {self.operand(node.src[0])}, ptr {name}")

    def _open(self, node: Node) -> None:
        """A loop that tests at its end, behind a guard where it might not run at all."""
        if node.attrs.unit is Unit.THREAD:
            start, stop = "%begin", "%end"
            certain = False
        else:
            start, stop = "0", self.operand(node.src[0])
            certain = bounds(node.src[0])[0] > 0
        head, done = self.label(), self.label()
        if certain:
            self.emit(f"br label %{head}")
        else:
            test = self.define(f"icmp slt i64 {start}, {stop}")
            self.emit(f"br i1 {test}, label %{head}, label %{done}")
        before = self.block
        self.begin_block(head)
        name, following = self.fresh(), self.fresh()
        latch = self.label()
        self.emit(f"{name} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]")
        self.names[node] = name
        self.loops.append(_Loop(node, head, latch, following, stop, done))

    def _close(self, node: Node) -> None:
        loop = self.loops.pop()
        self.emit(f"br label %{loop.latch}")
        self.begin_block(loop.latch)
        self.emit(f"{loop.following} = add nuw nsw i64 {self.names[loop.range_]}, 1")
        test = self.define(f"icmp slt i64 {loop.following}, {loop.stop}")
        self.emit(f"br i1 {test}, label %{loop.head}, label %{loop.done}")
        self.begin_block(loop.done)

    def _enter(self, node: Node) -> None:
        then, done = self.label(), self.label()
        self.emit(f"br i1 {self.operand(node.src[0])}, label %{then}, label %{done}")
        self.begin_block(then)
        self.conditions.append(done)

    def _leave(self, node: Node) -> None:
        done = self.conditions.pop()
        self.emit(f"br label %{done}")
        self.begin_block(done)

    # ---- matrix registers

    def _registers(self, node: Node) -> llvm_matrix.Registers:
        if self.matrices is None:
            raise cannot_render("LlvmRenderer", node)
        return self.matrices

    def _load_matrix(self, node: Node) -> None:
        number = self._registers(node).take(node)
        self.emit(llvm_matrix.load_text(node, number, self.value(node.src[0]), self.declare))

    def _dot_matrix(self, node: Node) -> None:
        registers = self._registers(node)
        x, y, z = (registers.held[source] for source in node.src)
        registers.alias(node, node.src[2])
        self.emit(llvm_matrix.dot_text(node, (x, y, z), self.declare))

    def _store_matrix(self, node: Node) -> None:
        number = self._registers(node).held[node.src[1]]
        self.emit(llvm_matrix.store_text(node, number, self.value(node.src[0]), self.declare))

    # ---- memory

    def _index(self, node: Node) -> None:
        buffer, offset = node.src
        kind = memory_type(node.type.dtype)
        if offset.type.shape:
            self.names[node] = pointers(self.define, kind, self.value(buffer), self.typed(offset))
            return
        if not is_shifted(offset):
            self.names[node] = self.define(
                f"getelementptr inbounds {kind}, ptr {self.value(buffer)}, "
                f"i64 {self.operand(offset)}"
            )
            return
        # Not "inbounds": it is only with the constant that the address lies in the buffer.
        variable, constant = offset.src
        base = self.bases.get((buffer, variable))
        if base is None:
            base = self.bases[buffer, variable] = self.define(
                f"getelementptr {kind}, ptr {self.value(buffer)}, i64 {self.operand(variable)}"
            )
        self.names[node] = self.define(
            f"getelementptr {kind}, ptr {base}, i64 {self.value(constant)}"
        )

    def _load(self, node: Node) -> None:
        gate = gate_of(node)
        dtype = node.type.dtype
        kind = memory_type(dtype)
        lanes = node.type.lanes
        full = f"<{lanes} x {kind}>" if lanes else kind
        pointer = self.value(node.src[0])
        align = alignment(node.src[0])
        if node.attrs is not None and node.attrs.ahead:
            self._fetch(pointer, node.attrs.ahead)
        if node.src[0].type.shape:
            mask = all_lanes(lanes) if gate is None else self.typed(gate)
            raw = gathered(
                self.define, self.declare, (full, scalar_suffix(kind)), pointer, align, mask
            )
        elif gate is None:
            raw = self.define(f"load {full}, ptr {pointer}, align {align}")
        elif gate.type.shape:
            suffix = f"v{lanes}{scalar_suffix(kind)}"
            name = self.declare(
                full, f"llvm.masked.load.{suffix}.p0", "ptr", "i32", f"<{lanes} x i1>", full
            )
            raw = self.define(
                f"call {full} @{name}(ptr {pointer}, i32 {align}, {self.typed(gate)}, "
                f"{full} zeroinitializer)"
            )
        else:
            raw = self._guarded_load(full, pointer, align, self.operand(gate))
        if dtype.is_bool:
            wanted = f"<{lanes} x i1>" if lanes else "i1"
            raw = self.define(f"trunc {full} {raw} to {wanted}")
        self.names[node] = raw

    def _fetch(self, pointer: str, ahead: int, *, to_write: bool = False) -> None:
        """Start to move what lies `ahead` bytes further into a cache."""
        place = self.define(f"getelementptr i8, ptr {pointer}, i64 {ahead}") if ahead else pointer
        name = self.declare("void", "llvm.prefetch.p0", "ptr", "i32", "i32", "i32")
        how = f"i32 {int(to_write)}, i32 {locality(ahead)}, i32 1"
        self.emit(f"call void @{name}(ptr {place}, {how})")

    def _fetch_statement(self, node: Node) -> None:
        pointer, attrs = self.value(node.src[0]), node.attrs
        self._fetch(pointer, attrs.ahead, to_write=attrs.to_write)

    def _guarded_load(self, full: str, pointer: str, align: int, gate: str) -> str:
        then, done = self.label(), self.label()
        before = self.block
        self.emit(f"br i1 {gate}, label %{then}, label %{done}")
        self.begin_block(then)
        loaded = self.define(f"load {full}, ptr {pointer}, align {align}")
        self.emit(f"br label %{done}")
        self.begin_block(done)
        zero = "zeroinitializer" if full.startswith("<") else scalar_zero(full)
        return self.define(f"phi {full} [ {loaded}, %{then} ], [ {zero}, %{before} ]")

    def _store(self, node: Node) -> None:
        target, value = node.src[0], node.src[1]
        gate = gate_of(node)
        dtype = value.type.dtype
        kind = memory_type(dtype)
        lanes = value.type.lanes
        full = f"<{lanes} x {kind}>" if lanes else kind
        text = self.operand(value)
        if dtype.is_bool:
            text = self.define(f"zext {type_of(value)} {text} to {full}")
        pointer = self.value(target)
        align = alignment(target)
        if target.type.shape:
            mask = all_lanes(lanes) if gate is None else self.typed(gate)
            self.emit(
                scattered(self.declare, (full, scalar_suffix(kind)), text, pointer, align, mask)
            )
        elif gate is None and self.may_pass and node.attrs is not None and node.attrs.past_lines:
            self.emit(llvm_past_caches.store_text(node, full, text, pointer))
        elif gate is None:
            self.emit(f"store {full} {text}, ptr {pointer}, align {align}")
        elif gate.type.shape:
            suffix = f"v{lanes}{scalar_suffix(kind)}"
            name = self.declare(
                "void", f"llvm.masked.store.{suffix}.p0", full, "ptr", "i32", f"<{lanes} x i1>"
            )
            self.emit(
                f"call void @{name}({full} {text}, ptr {pointer}, i32 {align}, {self.typed(gate)})"
            )
        else:
            self._guarded(self.operand(gate), f"store {full} {text}, ptr {pointer}, align {align}")

    def _guarded(self, gate: str, *lines: str) -> None:
        then, done = self.label(), self.label()
        self.emit(f"br i1 {gate}, label %{then}, label %{done}")
        self.begin_block(then)
        for line in lines:
            self.emit(line)
        self.emit(f"br label %{done}")
        self.begin_block(done)

    def _fault(self, node: Node) -> None:
        word = self.fresh()
        self._guarded(
            self.operand(node.src[0]),
            f"{word} = load ptr, ptr %variables",
            f"store i64 {node.attrs.code}, ptr {word}",
        )


#: What has no result of its own, or opens and closes blocks.
STATEMENTS: dict[OpDef, Callable[[_Function, Node], None]] = {
    RANGE: _Function._open,
    control.END: _Function._close,
    control.IF: _Function._enter,
    control.ENDIF: _Function._leave,
    control.ACCUMULATOR: _Function._accumulator,
    control.ACCUMULATE: _Function._accumulate,
    AFTER: _Function._after,
    INDEX: _Function._index,
    LOAD: _Function._load,
    STORE: _Function._store,
    FETCH: _Function._fetch_statement,
    LOAD_MATRIX: _Function._load_matrix,
    DOT_MATRIX: _Function._dot_matrix,
    STORE_MATRIX: _Function._store_matrix,
    FAULT_IF: _Function._fault,
    SINK: _Function._sink,
}
