"""LINEAR -> CUDA C for NVIDIA's run-time compiler.

The entry point takes one word of 8 bytes for each buffer, then for each variable, then the address
of the fault word and that of scratch memory.  It stands twice in the text where it moves vectors:
`name` for buffers that start at 16 bytes, `name_any` for others.  A vector is a handful of scalars
with names of their own; only memory knows vectors.  Index arithmetic whose bounds fit is done in
32 bits.  The first line is a comment with what a launch must know, as JSON.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, ClassVar, Final

from tilework.base.errors import RenderError
from tilework.dtypes import bfloat16, float32, index
from tilework.ir.fold import fold_op
from tilework.ir.ops import control, math, matrix, warp_matrix
from tilework.ir.ops.control import LaneAttrs
from tilework.ir.ops.index import LANES, RANGE, VARIABLE, Unit
from tilework.ir.ops.memory import AFTER, INDEX, LOAD, PARAM, SINK
from tilework.ir.ops.program import FAULT_IF
from tilework.ir.ops.sort import COUNT_UP, RANK_IN_WARP
from tilework.ir.symbolic.bounds import bounds
from tilework.ir.types import Memory
from tilework.render.base import cannot_render
from tilework.render.blocks import BlockRenderer, check_barriers
from tilework.render.c_family import cuda_matrix, cuda_memory, cuda_scans, cuda_warps, dialect
from tilework.render.c_family.cuda_folds import fold_helper, rank_helper, scan_helper
from tilework.render.c_family.cuda_literals import WORD, literal
from tilework.render.c_family.cuda_memory import memory_type
from tilework.render.c_family.cuda_prelude import PRELUDE
from tilework.render.c_family.dialect import CFamily, Emit, type_name
from tilework.target.cuda_code import ANY_SUFFIX, SOURCE_HEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilework.ir.lowered import LoweredKernel
    from tilework.ir.node import Node, OpDef

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
#: Innermost loops of so few iterations are written out by the compiler.
_UNROLLED: Final = 16
#: Longer vectors are arrays, which loops may index.
_MOST_NAMES: Final = 16
#: So few blocks leave room for those of the kernel behind them, which may wait there meanwhile.
_FEW_BLOCKS: Final = 16
#: Ops that make a round one that is not written out.
_WAITING: Final = frozenset({matrix.SIGNAL_WAIT, warp_matrix.MATRIX_WARP})
#: Ops whose first source is an array, however short.
_INDEXED: Final = frozenset(
    {matrix.MATRIX, matrix.MATRIX_HELD, matrix.PICK, matrix.PUT, warp_matrix.MATRIX_WARP}
)


def _function(name: str) -> Emit:
    """A function of floats, with an f at the end of its name for float32."""

    def emit(node: Node, names: Mapping[Node, str]) -> str:
        suffix = "f" if node.type.dtype is float32 else ""
        return f"{name}{suffix}({', '.join(names[source] for source in node.src)})"

    return emit


def _emit_multiply_add(node: Node, names: Mapping[Node, str]) -> str:
    dtype = node.type.dtype
    if dtype.is_float:
        return _function("fma")(node, names)
    return dialect.emit_multiply_add(node, names)


def _emit_absolute(node: Node, names: Mapping[Node, str]) -> str:
    if node.type.dtype.is_float:
        return _function("fabs")(node, names)
    return dialect.emit_absolute(node, names)


def _emit_cast(node: Node, names: Mapping[Node, str]) -> str:
    if node.type.dtype is bfloat16 and node.src[0].type.dtype is float32:
        return f"float_to_bfloat({names[node.src[0]]})"
    return dialect.emit_cast(node, names)


_FUNCTIONS: Final = {
    math.SQRT: "sqrt", math.FLOOR: "floor", math.CEIL: "ceil", math.TRUNC: "trunc",
    math.ROUND: "rint", math.COPYSIGN: "copysign", math.FMOD: "fmod",
    math.EXP: "exp",
}  # fmt: skip
_NARROW: Final = {math.ADD: "+", math.SUB: "-", math.MUL: "*"}
_DIVISIONS: Final = {math.CDIV: "/", math.CMOD: "%"}


class CudaRenderer(BlockRenderer):
    """CUDA C++17 for NVRTC, whose flags forbid contraction and keep subnormal numbers."""

    name: ClassVar[str] = "CudaRenderer"
    coordinates: ClassVar[Mapping[Unit, str]] = {
        Unit.THREAD: "blockIdx.x",
        Unit.WARP: "(int)(threadIdx.x / {local}u)",
        Unit.LOCAL: "(int)(threadIdx.x % {local}u)",
    }
    barrier: ClassVar[str] = "__syncthreads();"
    emitters: ClassVar[Mapping[OpDef, Emit]] = {
        **CFamily.emitters,
        **{op: _function(name) for op, name in _FUNCTIONS.items()},
        math.MULACC: _emit_multiply_add,
        math.ABS: _emit_absolute,
        math.CAST: _emit_cast,
    }

    def __init__(self, shared_limit_bytes: int = 48 << 10) -> None:
        self.shared_limit_bytes = shared_limit_bytes

    def render(self, kernel: LoweredKernel) -> str:
        """The source text of a kernel.

        Raises: RenderError for a node that has no text; VerifyError for a barrier that not all
            threads of a block reach.
        """
        if not _NAME.fullmatch(kernel.name):
            raise RenderError("CudaRenderer: the kernel's name is no identifier", got=kernel.name)
        check_barriers(kernel)
        function = _Function(self, kernel)
        body = function.text()
        is_shared = kernel.scratch_bytes <= self.shared_limit_bytes
        head = {
            "name": kernel.name,
            "threads": kernel.threads,
            "shared": kernel.scratch_bytes if is_shared else 0,
            "scratch": 0 if is_shared else kernel.scratch_bytes,
            "buffers": kernel.parameters,
            "variables": len(kernel.variables),
            "has_any": function.has_vectors,
            "is_persistent": function.is_persistent,
            "boxes": [_box_of(boxed) for boxed in function.boxes],
            "widths": _widths_of(kernel),
            "waits": True,
        }
        helpers = "".join(function.helpers[key] for key in sorted(function.helpers))
        return (
            f"{SOURCE_HEAD}{json.dumps(head, separators=(',', ':'))}\n{PRELUDE}"
            f"{function.prelude()}{helpers}"
            f"{self._entries(kernel, body, function)}"
        )

    def _entries(self, kernel: LoweredKernel, body: str, function: _Function) -> str:
        words = [f"u64 w{i}" for i in range(kernel.parameters + len(kernel.variables) + 2)]
        boxes = list(function.boxes.values())
        arguments = ", ".join(words + [f"const __grid_constant__ boxed_array {b}" for b in boxes])
        taken = ", ".join(words + [f"const boxed_array &{box}" for box in boxes])
        passed = ", ".join([word.split()[1] for word in words] + boxes)
        text = f"template <bool ALIGNED> HELPER void body({taken}) {{\n{body}}}\n"
        least = ", 1" if boxes or function.has_matrix else ""
        least = f", {kernel.resident}" if kernel.resident else least
        count = bounds(kernel.tasks)[1]
        first = "follow();" if count > _FEW_BLOCKS else "follow(); let_follow();"
        entries = [(kernel.name, "true")]
        if function.has_vectors:
            entries.append((f"{kernel.name}{ANY_SUFFIX}", "false"))
        for name, aligned in entries:
            text += (
                f'extern "C" __global__ void __launch_bounds__({kernel.threads}{least})\n'
                f"{name}({arguments}) {{\n  {first}\n  body<{aligned}>({passed});\n}}\n"
            )
        return text


class _Lane:
    """The names of values as one lane of a vector sees them."""

    def __init__(self, function: _Function, lane: int) -> None:
        self.function = function
        self.lane = lane

    def __getitem__(self, node: Node) -> str:
        return self.function.lanes(node)[self.lane] if node.type.shape else self.function[node]


class _Function:
    """The body of one kernel while it is written."""

    def __init__(self, renderer: CudaRenderer, kernel: LoweredKernel) -> None:
        self.renderer = renderer
        self.kernel = kernel
        self.names: dict[Node, str] = {}
        self.vectors: dict[Node, list[str]] = {}
        #: Vectors that go from memory to TILE memory as they are, in words.
        self.moved = cuda_warps.moved(kernel.linear.src)
        self.lines: list[str] = []
        #: Vectors that are C arrays, by the array's name.
        self.arrays: dict[Node, str] = {}
        #: Arrays that a copy engine moves, by the name of their argument.
        self.boxes: dict[Node, str] = {}
        self.helpers: dict[str, str] = {}
        self.has_vectors = False
        self.is_persistent = False
        used = {node.op for node in kernel.linear.src}
        self.has_matrix = matrix.MATRIX in used
        self.has_warps = not used.isdisjoint(cuda_warps.STATEMENTS)
        self.depth = 1
        self.counter = 0
        self.local = _unit_size(kernel, Unit.LOCAL)
        self.short, self.waiting = _short_loops(kernel)
        self.indexed = {node.src[0] for node in kernel.linear.src if node.op in _INDEXED}

    def prelude(self) -> str:
        """What the text needs beside the head of every source."""
        has_boxes = self.has_matrix or bool(self.boxes)
        parts = (
            (has_boxes or self.has_warps, cuda_matrix.SHARED_PRELUDE),
            (has_boxes, cuda_matrix.PRELUDE),
            (self.has_warps, cuda_warps.PRELUDE),
        )
        return "".join(part for is_used, part in parts if is_used)

    def text(self) -> str:
        if self.kernel.scratch_bytes > self.renderer.shared_limit_bytes:
            last = self.kernel.parameters + len(self.kernel.variables) + 1
            size = self.kernel.scratch_bytes
            self.emit(f"unsigned char *const shared = (unsigned char *)w{last}"
                       f" + (u64)blockIdx.x * {size}ull;")  # fmt: skip
        elif self.kernel.scratch_bytes:
            self.emit("extern __shared__ __align__(1024) unsigned char shared[];")
        for node in self.kernel.linear.src:
            self._statement(node)
        return "".join(self.lines)

    # ---- names

    def __getitem__(self, node: Node) -> str:
        found = self.names.get(node)
        if found is None:
            found = self.names[node] = self._leaf(node)
        return found

    def lanes(self, node: Node) -> list[str]:
        """The names of the lanes of a vector."""
        found = self.vectors.get(node)
        if found is None:
            found = self.vectors[node] = self._vector_leaf(node)
        return found

    def _leaf(self, node: Node) -> str:
        attrs = node.attrs
        if node.op is math.CONST and not node.type.shape:
            return literal(attrs.bits, attrs.dtype)
        if node.op is PARAM:
            return f"(({memory_type(node)} *)w{attrs.slot})"
        if node.op is control.ALLOCATE:
            return f"(({memory_type(node)} *)(shared + {attrs.offset_bytes}))"
        if node.op is VARIABLE:
            position = self.kernel.parameters + self.kernel.variables.index(attrs.name)
            return f"((int)w{position})" if is_narrow(node) else f"((i64)w{position})"
        raise cannot_render(self.renderer.name, node)

    def _vector_leaf(self, node: Node) -> list[str]:
        count = node.type.lanes
        if node.op is math.CONST:
            return [literal(node.attrs.bits, node.attrs.dtype)] * count
        if node.op is LANES:
            return [str(lane) for lane in range(count)]
        raise cannot_render(self.renderer.name, node)

    def fresh(self) -> str:
        """A name that nothing has."""
        self.counter += 1
        return f"v{self.counter}"

    def emit(self, line: str) -> None:
        """Add a line."""
        self.lines.append(f"{'  ' * self.depth}{line}\n")

    def define_later(self, kind: str) -> str:
        """Name a value that the next line gives."""
        name = self.fresh()
        self.emit(f"{kind} {name};")
        return name

    def define(self, kind: str, text: str) -> str:
        """Give a value a name; returns it."""
        name = self.fresh()
        # Assigned, not initialised: the compiler would try to compute what a variable starts with
        # from what others start with, in time that doubles with every one.
        self.emit(f"{kind} {name}; {name} = {text};")
        return name

    # ---- statements

    def _statement(self, node: Node) -> None:
        handler = _STATEMENTS.get(node.op)
        if handler is not None:
            handler(self, node)
            return
        if node.op is BITCAST and _changes_lanes(node):
            raise cannot_render(self.renderer.name, node)
        emitter = self.renderer.emitters.get(node.op)
        if emitter is None:
            raise cannot_render(self.renderer.name, node)
        if not node.type.shape:
            self.names[node] = self.define(value_type(node), self._scalar(node, emitter, self))
            return
        if node.op is math.FDIV and node.type.dtype is float32:
            self._quotients(node)
            return
        self.vectors[node] = [
            self.define(type_name(node.type.dtype), emitter(node, _Lane(self, lane)))  # type: ignore[arg-type]
            for lane in range(node.type.lanes)
        ]

    def _scalar(self, node: Node, emitter: Emit, names: _Function) -> str:
        if is_narrow(node) and all(is_narrow(source) for source in node.src):
            if node.op in _NARROW:
                x, y = (names[source] for source in node.src)
                return f"{x} {_NARROW[node.op]} {y}"
            if node.op in _DIVISIONS and all(bounds(source)[0] >= 0 for source in node.src):
                x, y = (names[source] for source in node.src)
                return f"(int)((u32){x} {_DIVISIONS[node.op]} (u32){y})"
        text = emitter(node, names)  # type: ignore[arg-type]
        return f"(int)({text})" if is_narrow(node) else text

    def _open(self, node: Node) -> None:
        name = self.fresh()
        unit = node.attrs.unit
        kind = value_type(node)
        if unit is Unit.LOOP or unit is Unit.UNROLL:
            if unit is Unit.UNROLL or node in self.short:
                self.emit("#pragma unroll")
            elif node in self.waiting:
                self.emit("#pragma unroll 1")
            self.emit(f"for ({kind} {name} = 0; {name} < {self[node.src[0]]}; {name}++) {{")
        elif unit is Unit.THREAD and self.depth > 1:
            # Inside of the block's threads this is a loop over the tasks that the block runs.
            self.is_persistent = True
            count = self[node.src[0]]
            self.emit(f"for ({kind} {name} = blockIdx.x; {name} < {count}; {name} += gridDim.x) {{")
        elif unit in self.renderer.coordinates:
            text = self.renderer.coordinates[unit].format(local=self.local)
            self.emit("{")
            self.emit(f"  {kind} {name} = {text};")
        else:
            raise cannot_render(self.renderer.name, node)
        self.names[node] = name
        self.depth += 1

    def _close(self, node: Node) -> None:
        self.depth -= 1
        self.emit("}")

    def _if(self, node: Node) -> None:
        self.emit(f"if ({self[node.src[0]]}) {{")
        self.depth += 1

    def _accumulator(self, node: Node) -> None:
        kind = type_name(node.type.dtype)
        if not node.type.shape:
            name = self.names[node] = self.fresh()
            self.emit(f"{kind} {name} = {self[node.src[0]]};")
            return
        initials = self.lanes(node.src[0])
        is_array = len(initials) > _MOST_NAMES or node in self.indexed
        if is_array and len(set(initials)) == 1:
            name = self.arrays[node] = self.fresh()
            count = len(initials)
            self.emit(f"{kind} {name}[{count}];")
            self.emit("#pragma unroll")
            self.emit(f"for (int i = 0; i < {count}; i++) {name}[i] = {initials[0]};")
            self.vectors[node] = [f"{name}[{i}]" for i in range(count)]
            return
        self.vectors[node] = []
        for initial in initials:
            name = self.fresh()
            self.emit(f"{kind} {name} = {initial};")
            self.vectors[node].append(name)

    def _accumulate(self, node: Node) -> None:
        variable, value = node.src
        if not value.type.shape:
            self.emit(f"{self[variable]} = {self[value]};")
            return
        for name, text in zip(self.lanes(variable), self.lanes(value), strict=True):
            if name != text:  # a product adds to its accumulators where they are
                self.emit(f"{name} = {text};")

    def _after(self, node: Node) -> None:
        """The value of an accumulator at this point; effects need no text."""
        variable = node.src[0]
        if variable.op is not control.ACCUMULATOR:
            return
        kind = type_name(node.type.dtype)
        if not node.type.shape:
            self.names[node] = self.define(kind, self[variable])
        else:
            self.vectors[node] = [self.define(kind, name) for name in self.lanes(variable)]

    def _nothing(self, node: Node) -> None:
        """A set of effects, which have been written."""

    def _barrier(self, node: Node) -> None:
        self.emit(self.renderer.barrier)

    # ---- vectors

    def _quotients(self, node: Node) -> None:
        """A vector of quotients: one branch for all lanes to the division of extreme numbers."""
        pairs = list(zip(*(self.lanes(source) for source in node.src), strict=True))
        fine = self.fresh()
        self.emit(f"bool {fine} = true;")
        names = self.vectors[node] = [self.fresh() for _ in pairs]
        for name, (x, y) in zip(names, pairs, strict=True):
            self.emit(f"f32 {name} = quotient({x}, {y}, {fine});")
        slow = " ".join(f"{n} = divided({x}, {y});" for n, (x, y) in zip(names, pairs, strict=True))
        self.emit(f"if (!{fine}) {{ {slow} }}")

    def _broadcast(self, node: Node) -> None:
        self.vectors[node] = [self[node.src[0]]] * node.type.lanes

    def _stack(self, node: Node) -> None:
        self.vectors[node] = [self[lane] for lane in node.src]

    def _extract(self, node: Node) -> None:
        self.names[node] = self.lanes(node.src[0])[node.attrs.lane]

    def _shuffle(self, node: Node) -> None:
        both = self.lanes(node.src[0]) + self.lanes(node.src[1])
        self.vectors[node] = [both[lane] for lane in node.attrs.lanes]

    def _fold_lanes(self, node: Node) -> None:
        """Halves combined pairwise, as the statements that a tree would be."""
        source = node.src[0]
        values = [control.EXTRACT(source, attrs=LaneAttrs(lane))
                  for lane in range(source.type.lanes)]  # fmt: skip
        for value in values:
            self._extract(value)
        op = fold_op(node.attrs.fold, source.type.dtype)
        while len(values) > 1:
            half = len(values) // 2
            values = [op(values[i], values[i + half]) for i in range(half)]
            for value in values:
                self._statement(value)
        self.names[node] = self[values[0]]

    def _fold_threads(self, node: Node) -> None:
        units = [source.attrs.unit for source in node.src[1:]]
        sizes = {unit: _unit_size(self.kernel, unit) for unit in (Unit.WARP, Unit.LOCAL)}
        is_vector = bool(node.type.shape)
        texts = self.lanes(node.src[0]) if is_vector else [self[node.src[0]]]
        for unit in (Unit.LOCAL, Unit.WARP):
            if unit in units:
                name, helper = fold_helper(
                    self.renderer.emitters, node, unit, sizes[Unit.LOCAL], sizes[Unit.WARP]
                )
                self.helpers[name] = helper
                texts = [f"{name}({text})" for text in texts]
        found = [self.define(type_name(node.type.dtype), text) for text in texts]
        if is_vector:
            self.vectors[node] = found
        else:
            self.names[node] = found[0]

    def _scan_threads(self, node: Node) -> None:
        """Running folds of a thread's lanes, on top of the fold of all threads before."""
        source = node.src[0]
        lanes = self.lanes(source) if source.type.shape else [self[source]]
        local = _unit_size(self.kernel, Unit.LOCAL)
        name, combine, helper = scan_helper(self.renderer.emitters, node, local)
        self.helpers[name] = helper
        kind = type_name(node.type.dtype)
        sums = [lanes[0]]
        for lane in lanes[1:]:
            sums.append(self.define(kind, f"{combine}({sums[-1]}, {lane})"))
        before = self.define(kind, f"{name}({sums[-1]})")
        parts = sums[:-1] if node.attrs.exclusive else sums
        found = [self.define(kind, f"{combine}({before}, {part})") for part in parts]
        if node.attrs.exclusive:
            found.insert(0, before)
        if source.type.shape:
            self.vectors[node] = found
        else:
            self.names[node] = found[0]

    def _rank_in_warp(self, node: Node) -> None:
        name, helper = rank_helper(node.attrs.bits)
        self.helpers[name] = helper
        counter, value = (self[source] for source in node.src)
        self.names[node] = self.define("i32", f"{name}({counter}, {value})")

    def _count_up(self, node: Node) -> None:
        self.emit(f"atomicAdd({self[node.src[0]]}, 1);")

    # ---- memory

    def _index(self, node: Node) -> None:
        if node.src[1].type.shape:
            raise cannot_render(self.renderer.name, node)
        base, offset = (self[source] for source in node.src)
        name = self.fresh()
        self.emit(f"{memory_type(node)} *const {name} = {base} + {offset};")
        self.names[node] = name

    def pack(self, node: Node, lanes: int) -> str:
        """The arguments of a template that moves neighbours."""
        return f"{'ALIGNED' if self._is_global(node) else 'true'}, {memory_type(node)}, {lanes}"

    def _is_global(self, address: Node) -> bool:
        is_global = address.type.memory is Memory.GLOBAL
        self.has_vectors |= is_global
        return is_global

    def _fault(self, node: Node) -> None:
        word = self.kernel.parameters + len(self.kernel.variables)
        self.emit(f"if ({self[node.src[0]]}) *(i64 *)w{word} = {int(node.attrs.code)};")


def _box_of(boxed: Node) -> dict[str, object]:
    """What a launch must know to describe an array to the copy engine."""
    attrs, dtype = boxed.attrs, boxed.src[0].type.dtype
    return {
        "slot": boxed.src[0].attrs.slot,
        "dtype": dtype.name,
        "start_bytes": attrs.start * dtype.itemsize,
        "sizes": attrs.sizes,
        "strides_bytes": [stride * dtype.itemsize for stride in attrs.strides],
        "box": attrs.box,
        "swizzle_bytes": attrs.swizzle_bytes,
        "steps": attrs.steps,
    }


def _short_loops(kernel: LoweredKernel) -> tuple[set[Node], set[Node]]:
    """The loops of few iterations, known now, that hold no other loop; and those that wait.

    A round that waits for a slot, or multiplies one, gains nothing from being written out: its
    matrix instructions are in flight one after the other anyway, and each costs the compiler a
    hundred registers.
    """
    short: set[Node] = set()
    waiting: set[Node] = set()
    innermost: Node | None = None
    is_waiting = False
    for node in kernel.linear.src:
        if node.op is RANGE:
            innermost, is_waiting = node, False
        elif node.op in _WAITING:
            is_waiting = True
        elif node.op is control.END and node.src[0] is innermost:
            size = innermost.src[0]
            if size.op is math.CONST and bounds(size)[1] <= _UNROLLED:
                (waiting if is_waiting else short).add(innermost)
            innermost = None
    return short, waiting


def _widths_of(kernel: LoweredKernel) -> str:
    """The bytes of an element of each buffer, 1 for those that are not used."""
    widths = [1] * kernel.parameters
    for node in kernel.linear.src:
        for source in node.src:
            if source.op is PARAM:
                widths[source.attrs.slot] = source.attrs.dtype.itemsize
    return ",".join(map(str, widths))


def _unit_size(kernel: LoweredKernel, unit: Unit) -> int:
    """How many units of a kind the kernel's block has."""
    for node in kernel.linear.src:
        if node.op is RANGE and node.attrs.unit is unit:
            return int(bounds(node.src[0])[1])
    return 1


def _changes_lanes(node: Node) -> bool:
    return node.type.shape != node.src[0].type.shape


def is_narrow(node: Node) -> bool:
    """Is this index arithmetic that is done in 32 bits?"""
    if node.type.dtype is not index or node.type.shape or node.op in _WIDE:
        return False
    low, high = bounds(node)
    return low >= -WORD and high < WORD


def value_type(node: Node) -> str:
    """The type of a scalar's variable."""
    return "int" if is_narrow(node) else type_name(node.type.dtype)


BITCAST = math.BITCAST
_WIDE: Final = frozenset([LOAD, AFTER, control.ACCUMULATOR, control.FOLD_THREADS,
                          control.EXTRACT, control.FOLD_LANES])  # fmt: skip
_STATEMENTS: Final[Mapping[OpDef, Callable[[_Function, Node], None]]] = {
    RANGE: _Function._open,
    control.END: _Function._close,
    control.IF: _Function._if,
    control.ENDIF: _Function._close,
    control.ACCUMULATOR: _Function._accumulator,
    control.ACCUMULATE: _Function._accumulate,
    control.BARRIER: _Function._barrier,
    control.BROADCAST: _Function._broadcast,
    control.STACK: _Function._stack,
    control.EXTRACT: _Function._extract,
    control.SHUFFLE: _Function._shuffle,
    control.FOLD_LANES: _Function._fold_lanes,
    control.FOLD_THREADS: _Function._fold_threads,
    control.SCAN_THREADS: _Function._scan_threads,
    RANK_IN_WARP: _Function._rank_in_warp,
    COUNT_UP: _Function._count_up,
    AFTER: _Function._after,
    SINK: _Function._nothing,
    INDEX: _Function._index,
    FAULT_IF: _Function._fault,
    **cuda_matrix.STATEMENTS,
    **cuda_memory.STATEMENTS,
    **cuda_scans.STATEMENTS,
    **cuda_warps.STATEMENTS,
}
