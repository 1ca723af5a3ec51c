"""A captured program in one file, and back.

The file holds the launch plan, constants and a description of inputs and outputs, and for each
kernel object code, or, in a portable file, its graph.  Object code runs without any compiler on
processors that have what it was made for; graphs are compiled on loading for the processor that
loads them.  Nothing in a file is executed on loading, every byte is covered by a checksum, and
constants are mapped, not read.  `docs/export-format.md` describes the layout.

    write_export(path, program, signature, code_settings)    # signature: the layer above's data
    program, signature = read_export(path)
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilework.backends.native import native_object, provide_native_object
from tilework.backends.registry import renderers
from tilework.base import settings
from tilework.base.errors import TileworkError, UnsupportedError
from tilework.base.records import dataclass, field
from tilework.engine.captured_program import CapturedProgram
from tilework.engine.compile import CompiledKernel, compile_kernels, kernel_from_head
from tilework.engine.device import Device
from tilework.engine.export_file import (
    ALIGNMENT,
    PAGE,
    ExportFile,
    Sections,
    malformed,
    numbers,
    open_file,
    write_file,
)
from tilework.engine.steps import KernelCall, Operand, PoisonCall, VariableBounds
from tilework.ir.node import toposort
from tilework.ir.ops.memory import PARAM
from tilework.ir.stage import Stage
from tilework.ir.symbolic import dims
from tilework.runtime.hostos import host_os
from tilework.runtime.lease import Lease, LeaseKind
from tilework.target.features import AARCH64, X86_64, missing_features

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.runtime.buffer import Buffer
    from tilework.target.spec import TargetSpec

_NATIVE: Final = frozenset({X86_64, AARCH64})
#: What a portable file says instead of an instruction set.
PORTABLE: Final = "any"
#: From the mode that promises most to the one that promises least.
_FP_MODES: Final = ("strict", "contract", "fast")


# --- writing --------------------------------------------------------------------------------------


def write_export(
    path: str | os.PathLike[str],
    program: CapturedProgram,
    signature: Any,
    code_settings: Mapping[str, Any],
    *,
    accesses: str = "trusted",
    portable: bool = False,
    key: bytes | None = None,
) -> None:
    """Write a program to a file, whole or not at all.

    Args:
        path: the file; one that exists is replaced.
        program: what to write; held buffers become constants, written ones initial state.
        signature: plain data that `read_export` gives back.
        code_settings: the settings that its kernels were compiled under, of those that change code.
        accesses: whether each access of its kernels was "proven" to lie inside of its buffer, was
            proven or is "checked" when it runs, or is "trusted".
        portable: write the graphs of kernels instead of object code.
        key: signs the file.

    Raises: UnsupportedError when a part of the program is not for the CPU; UserError for a key
    that is none.
    """
    targets = _targets_of(program)
    if program.packed is not None:
        program.packed.refresh()
    data = Sections()
    used = {o.slot for s in program.steps if isinstance(s, KernelCall) for o in s.operands}
    constants: list[dict[str, Any]] = []
    for number, buffer in enumerate(program.held):
        slot = program.num_inputs + number
        # What is only read in a packed copy need not travel.
        content = Device["CPU"].view(buffer) if slot in used else b""
        place = data.add(content, PAGE if number == 0 else ALIGNMENT)
        constants.append({"place": place, "is_written": slot in program.written})
    kernels: dict[str, int] = {}
    rows: list[dict[str, object]] = []
    steps: list[list[Any]] = []
    for step in program.steps:
        if isinstance(step, PoisonCall):
            continue
        if not isinstance(step, KernelCall):
            raise UnsupportedError("export: copies between devices cannot be exported")
        if step.code.key not in kernels:
            kernels[step.code.key] = len(rows)
            blob = _graph_text(step) if portable else step.code.data
            rows.append({**({} if portable else step.code.head()), "place": data.add(blob)})
        operands = [[o.slot, o.offset_bytes, o.size_bytes] for o in step.operands]
        steps.append([kernels[step.code.key], operands, step.is_serial])
    description = {
        **_target(targets, data, portable),
        "settings": dict(code_settings),
        "accesses": accesses,
        "kernels": rows,
        "steps": steps,
        "num_inputs": program.num_inputs,
        "constants": constants,
        "outputs": [size for _, size in program.outputs],
        "arenas": [size for _, size in program.arenas],
        "variables": [[row.name, row.minimum, row.maximum] for row in program.variables],
        "signature": signature,
    }
    write_file(Path(path), description, data, key)


def _target(targets: Mapping[str, TargetSpec], data: Sections, portable: bool) -> dict[str, Any]:
    """What the code is for, and who made it."""
    if portable:
        return {"isa": PORTABLE, "features": [], "renderer": "", "compiler": "", "functions": {}}
    # Imported here: whoever loads a file needs no code generator.
    from tilework.codegen.decompose.transcendental import choices

    isa, features, functions = "", frozenset[str](), dict[str, str]()
    for spec in targets.values():
        isa, features, functions = spec.isa, features | spec.features, functions | choices(spec)
    made = [Device[name] for name in targets]
    return {
        "isa": isa,
        "features": sorted(features),
        "renderer": made[0].backend.renderer,
        "compiler": "; ".join(sorted({device.compiler.key for device in made})),
        "pool": data.add(native_object(isa)),
        "functions": functions,
    }


def _graph_text(step: KernelCall) -> bytes:
    from tilework.ir.text import format_node  # most exports are of object code

    if step.kernel is None:
        raise UnsupportedError(
            "export: the graph of a kernel is not known any more, so it cannot be portable",
            got=step.code.name,
        )
    return format_node(step.kernel).encode()


def _targets_of(program: CapturedProgram) -> dict[str, TargetSpec]:
    names = {step.device for step in program.steps if isinstance(step, KernelCall)}
    found: dict[str, TargetSpec] = {}
    for name in sorted(names) or ["CPU"]:
        spec = Device[name].spec
        if spec.isa not in _NATIVE or not Device[name].is_host_memory:
            raise UnsupportedError(
                f"export: programs of {name} cannot be exported", expected="programs of the CPU"
            )
        found[name] = spec
    return found


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel of a file; of one that was compiled here, also the bytes of each of its buffers."""

    code: CompiledKernel
    graph: Node | None = None
    sizes: Mapping[int, int] = field(default_factory=dict)


def read_export(
    path: str | os.PathLike[str], *, key: bytes | None = None
) -> tuple[CapturedProgram, Any]:
    """Read what `write_export` wrote; object code needs no compiler.

    Args:
        path: the file.
        key: refuse a file that is not signed with it.

    Raises: ModelFileError when the file is no export, damaged, contradicts itself, or is not
    signed with `key`; UnsupportedError when this processor lacks what the code needs, or when the
    code promises less than the settings in force ask for; for a portable file also what compiling
    raises.
    """
    file = open_file(Path(path), key)
    description = file.description
    _check_target(description)
    code_settings = _code_settings(description)
    _check_accesses(description)
    kernels = _kernels(file, code_settings)
    held = _held(file)
    (num_inputs,) = numbers([description.get("num_inputs")], 1, "num_inputs")
    if num_inputs > len(file.mapping):  # each one is described
        raise malformed("it has more inputs than it can describe", num_inputs)
    outputs = numbers(description.get("outputs"), None, "outputs")
    arenas = numbers(description.get("arenas"), None, "arenas")
    sizes = [None] * num_inputs + [buffer.size_bytes for buffer in held] + outputs + arenas
    constants = _list(description, "constants", dict)
    mapped = {num_inputs + at for at, row in enumerate(constants) if not row.get("is_written")}
    steps = [_step(row, kernels, sizes, mapped) for row in _list(description, "steps", list)]
    variables = tuple(_variable(row) for row in _list(description, "variables", list))
    name = "CPU"
    program = CapturedProgram(
        tuple(steps),
        num_inputs,
        tuple(held),
        tuple((name, size) for size in outputs),
        tuple((name, size) for size in arenas),
        variables,
    )
    _check_functions(description.get("functions"))
    return program, description.get("signature")


def _code_settings(description: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the code was or will be made under, which must promise enough.

    Raises: ModelFileError, UnsupportedError.
    """
    found = description.get("settings")
    current = settings.current()
    known = dict(current.key(settings.Affects.CODE))
    is_right = isinstance(found, dict) and all(
        type(found.get(name)) is type(value) for name, value in known.items()
    )
    if not isinstance(found, dict) or not is_right or set(found) != set(known):
        raise malformed("the settings of its code are malformed", found)
    mode = found["fp_mode"]
    if mode not in _FP_MODES:
        raise malformed("the settings of its code are malformed", found)
    if _FP_MODES.index(mode) > _FP_MODES.index(current.fp_mode):
        raise UnsupportedError(
            "export: the code in the file was made for an fp_mode that promises less",
            got=mode,
            expected=current.fp_mode,
            try_=f"settings.override(fp_mode={mode!r}), if that is what you want",
        )
    if current.keep_subnormals and not found["keep_subnormals"]:
        raise UnsupportedError(
            "export: the code in the file may take subnormal numbers for zeros",
            got="keep_subnormals=False",
            expected="keep_subnormals=True, as it is set here",
            try_="export it under keep_subnormals",
        )
    return found


def _check_accesses(description: Mapping[str, Any]) -> None:
    """Whoever asks for proofs or checks gets no object code without; graphs are compiled so."""
    found = description.get("accesses")
    if found not in ACCESS_MODES:
        raise malformed("it does not say whether its accesses are proven", found)
    current = settings.current()
    wanted = access_mode(current)
    is_enough = ACCESS_MODES.index(found) >= ACCESS_MODES.index(wanted)
    if description["isa"] != PORTABLE and not is_enough:
        by = "check_accesses" if current.check_accesses else "prove_accesses"
        raise UnsupportedError(
            f"export: the accesses of the code in the file are not {wanted}",
            got=found,
            expected=f"{wanted}, by the setting {by}",
            try_=f"export it under {by}, or with portable=True",
        )


#: Each promises more than those before it: proofs take indexes from memory on trust, checks do not.
ACCESS_MODES: Final = ("trusted", "proven", "checked")


def access_mode(current: settings.Settings) -> str:
    """What kernels that are compiled under these settings promise of their accesses."""
    if current.check_accesses:
        return "checked"
    return "proven" if current.prove_accesses else "trusted"


def _kernels(file: ExportFile, code_settings: Mapping[str, Any]) -> list[_Kernel]:
    rows = _list(file.description, "kernels", dict)
    if file.description["isa"] == PORTABLE:
        return _compiled_here(file, rows, code_settings)
    isa = file.description["isa"]
    provide_native_object(isa, bytes(file.blob(file.description.get("pool"))))
    found: list[_Kernel] = []
    for row in rows:
        data = bytes(file.blob(row.get("place")))
        name = f"export;{hashlib.blake2b(data, digest_size=20).hexdigest()}"
        found.append(_Kernel(kernel_from_head(name, row, data)))
    return found


def _compiled_here(
    file: ExportFile, rows: Sequence[Mapping[str, Any]], code_settings: Mapping[str, Any]
) -> list[_Kernel]:
    """Compile graphs for this processor, after a check that they are legal."""
    graphs = [_read_graph(bytes(file.blob(row.get("place")))) for row in rows]
    with settings.override(**code_settings):
        made = compile_kernels(Device["CPU"], graphs)
    return [
        _Kernel(code, graph, _sizes_of(graph)) for code, graph in zip(made, graphs, strict=True)
    ]


def _read_graph(text: bytes) -> Node:
    # Imported here: object code needs neither.
    from tilework.ir.text import parse
    from tilework.ir.verify import verify

    try:
        graph = parse(text.decode())
        verify(graph, Stage.KERNEL)
    except (TileworkError, ValueError, TypeError, IndexError, KeyError) as error:
        raise malformed("the graph of a kernel is not legal", error) from error
    return graph


def _sizes_of(graph: Node) -> dict[int, int]:
    """The bytes of each buffer of a kernel, by slot."""
    return {
        node.attrs.slot: dims.greatest(dims.product(node.type.shape)) * node.type.dtype.itemsize
        for node in toposort(graph)
        if node.op is PARAM
    }


def _check_functions(functions: Any) -> None:
    """Which elementary functions are the processor's own: for people, so it must be readable."""
    is_table = isinstance(functions, dict) and all(
        isinstance(name, str) and choice in ("native", "lowered")
        for name, choice in functions.items()
    )
    if not is_table:
        raise malformed("it does not say how elementary functions are computed", functions)


def functions_of(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return how a file computes each elementary function, as `op/dtype`: `native` or `lowered`.

    Raises: ModelFileError when the file is no export, or damaged.
    """
    functions = open_file(Path(path)).description.get("functions")
    _check_functions(functions)
    return dict(functions or {})


def _check_target(description: dict[str, Any]) -> None:
    isa, features = description.get("isa"), description.get("features")
    if not isinstance(isa, str) or not isinstance(features, list):
        raise malformed("the target is malformed", isa)
    renderer, compiler = description.get("renderer"), description.get("compiler")
    if not isinstance(renderer, str) or not isinstance(compiler, str):
        raise malformed("it does not say what made its code", renderer)
    if isa == PORTABLE:
        if features or renderer or compiler:
            raise malformed("it is portable, and has a target", features or renderer or compiler)
        return
    host = host_os()
    lacking = missing_features(map(str, features), host.cpu_features())
    if isa != host.isa() or lacking:
        raise UnsupportedError(
            "export: this processor cannot run the file",
            got=f"{isa} with {', '.join(lacking) or 'the features of this machine'}",
            expected=host.isa(),
            try_="export it again on, or for, this machine, or with portable=True",
        )
    if renderer not in renderers("CPU"):
        raise UnsupportedError(
            "export: the code in the file was made by a renderer that is not known",
            got=renderer,
            expected=" or ".join(renderers("CPU")),
        )


def _held(file: ExportFile) -> list[Buffer]:
    """Constants are views of the mapped file; state is copied, since it will be written."""
    rows = _list(file.description, "constants", dict)
    if not rows:
        return []
    device = Device["CPU"]
    address = _address_of(file.view)
    lease = Lease(
        address,
        len(file.view),
        kind=LeaseKind.FILE,
        owner="export",
        on_release=file.view.release,
        is_readonly=True,
    )
    mapped = device.map(lease)
    held: list[Buffer] = []
    for row in rows:
        offset, size = numbers(row.get("place"), 2, "a place")
        blob = file.blob([offset, size])
        if row.get("is_written"):
            buffer = device.allocate(size)
            device.copy_in(buffer, blob)
        else:
            buffer = mapped.view(offset, size)
        held.append(buffer)
    return held


def _address_of(view: memoryview) -> int:
    """Return where a read-only view lies; ctypes alone cannot say for memory it may not write."""
    import ctypes

    class _View(ctypes.Structure):
        _fields_ = (  # the start of CPython's Py_buffer
            ("buf", ctypes.c_void_p),
            ("obj", ctypes.py_object),
            ("len", ctypes.c_ssize_t),
            ("rest", ctypes.c_byte * 256),
        )

    found = _View()
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    get.argtypes = (ctypes.py_object, ctypes.POINTER(_View), ctypes.c_int)
    release.argtypes = (ctypes.POINTER(_View),)
    get(view, ctypes.byref(found), 0)
    address = int(found.buf or 0)
    release(ctypes.byref(found))
    return address


def _step(
    row: list[Any],
    kernels: Sequence[_Kernel],
    sizes: Sequence[int | None],
    mapped: AbstractSet[int],
) -> KernelCall:
    """One launch; `mapped` are the slots of constants, whose memory the system forbids to write."""
    if len(row) != 3 or not isinstance(row[1], list) or not isinstance(row[2], bool):
        raise malformed("a step is malformed", row)
    (number,) = numbers([row[0]], 1, "a kernel")
    if number >= len(kernels):
        raise malformed("a step names no kernel", number)
    kernel = kernels[number]
    operands: list[Operand] = []
    for item in row[1]:
        slot, offset, size = numbers(item, 3, "an operand")
        limit = sizes[slot] if slot < len(sizes) else 0
        if slot >= len(sizes) or (limit is not None and offset + size > limit):
            raise malformed("an operand reaches outside of its memory", item)
        if size < kernel.sizes.get(len(operands), 0):
            raise malformed("a kernel reaches outside of its operand", item)
        operands.append(Operand(slot, offset, size))
    if len(operands) != kernel.code.num_buffers:
        raise malformed("a step has too few or too many operands", len(operands))
    if any(operands[place].slot in mapped for place in kernel.code.writes):
        raise malformed("a step writes to a constant", row)
    return KernelCall("CPU", kernel.code, tuple(operands), row[2], kernel.graph)


def _variable(row: list[Any]) -> VariableBounds:
    if len(row) != 3 or not isinstance(row[0], str):
        raise malformed("a variable is malformed", row)
    least, most = row[1], row[2]
    if not isinstance(least, int) or not isinstance(most, int) or least > most:
        raise malformed("the bounds of a variable are malformed", row)
    return VariableBounds(row[0], least, most)


def _list(description: dict[str, Any], name: str, kind: type) -> list[Any]:
    found = description.get(name)
    if not isinstance(found, list) or not all(isinstance(item, kind) for item in found):
        raise malformed(f"the list {name} is malformed", type(found).__name__)
    return found
