"""What renderers promise of every text: checked input, kept gates, safe memory, no loose ends."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilework import Tensor, dtypes
from tilework.base.errors import CompileError, RenderError, VerifyError
from tilework.base.settings import override
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import float32, int32
from tilework.engine.build_records import content_hash
from tilework.engine.device import Device
from tilework.ir.build import const, const_index
from tilework.ir.lowered import LoweredKernel
from tilework.ir.node import Node, make
from tilework.ir.ops import OPS, math
from tilework.ir.ops.control import END, IF
from tilework.ir.ops.index import RANGE, VARIABLE, RangeAttrs, VariableAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.program import LINEAR
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.stage import Stage
from tilework.ir.symbolic import simplify
from tilework.render.base import gate_of
from tilework.render.c_family import clang
from tilework.render.c_family.clang import ClangRenderer
from tilework.render.llvm_expressions import EMITTERS
from tilework.render.llvm_ir import STATEMENTS, LlvmRenderer
from tilework.target.known.cpu import aarch64_spec, x86_level_spec
from tilework.testing.kernels import Case, can_run, compile_to, execute, target
from tilework.toolchain.llvm import LlvmToolchain

TARGET = x86_level_spec("x86-64-v3", cores=2)
RENDERERS = [ClangRenderer, LlvmRenderer]
Renderer = type[ClangRenderer] | type[LlvmRenderer]
LEVEL = "x86-64-v3" if can_run("x86-64-v3") else "x86-64"


def at(slot: int, count: int, offset: Node, dtype: dtypes.DType = float32) -> Node:
    return INDEX(PARAM(attrs=ParamAttrs(slot, (count,), dtype)), offset)


def padded(size: int = 20, dtype: dtypes.DType = float32) -> Node:
    i = RANGE(const_index(size + 6), attrs=RangeAttrs(0))
    gate = simplify.both(
        simplify.at_least(i, const_index(3)), simplify.less(i, const_index(size + 3))
    )
    x = LOAD(at(1, size, simplify.sub(i, const_index(3)), dtype), gate)
    return SINK(STORE(at(0, size + 6, i, dtype), x))


def sums() -> Node:
    """Rows of exp(x) * y + z, so that a kernel has loops, functions and vectors."""
    i = RANGE(const_index(9), attrs=RangeAttrs(0))
    k = RANGE(const_index(24), attrs=RangeAttrs(1))
    offset = simplify.add(simplify.scale(i, 24), k)
    product = math.MUL(math.EXP(LOAD(at(1, 216, offset))), LOAD(at(2, 24, k)))
    total = REDUCE(product, k, attrs=ReduceAttrs(Fold.ADD))
    return SINK(STORE(at(0, 9, i), math.ADD(total, LOAD(at(3, 9, i)))))


def with_statements(*statements: Node) -> LoweredKernel:
    return replace(lower_kernel(padded(), TARGET), linear=LINEAR(*statements))


def illegal() -> Iterator[tuple[str, LoweredKernel]]:
    """One kernel for each way in which statements can be illegal."""
    loop = RANGE(const_index(4), attrs=RangeAttrs(0))
    other = RANGE(const_index(5), attrs=RangeAttrs(1))
    x = const(1, float32)
    yield "an op of another stage", with_statements(REDUCE(x, loop, attrs=ReduceAttrs(Fold.ADD)))
    yield "a loop that never ends", with_statements(loop)
    yield "ends that cross", with_statements(loop, other, END(loop), END(other))
    yield "an open condition", with_statements(IF(const(True, dtypes.bool_)))
    yield "a value before its statement", with_statements(math.NEG(math.ABS(LOAD(at(0, 4, loop)))))
    yield "a range outside of its loop", with_statements(math.ADD(loop, const_index(1)))
    yield "a missing operand", with_statements(make(math.ADD, (const_index(1),), None))
    yield "a buffer that is none", with_statements(LOAD(at(7, 4, const_index(0))))
    variable = VARIABLE(attrs=VariableAttrs("m", 1, 9))
    yield "a variable that is none", with_statements(math.ADD(variable, const_index(1)))


@pytest.mark.parametrize("verify", ["off", "stage", "pass"])
@pytest.mark.parametrize("renderer", RENDERERS)
def test_CST_01_a_renderer_checks_its_input_whatever_the_setting(
    renderer: Renderer, verify: str
) -> None:
    with override(verify=verify):
        for what, kernel in illegal():
            with pytest.raises(VerifyError):
                renderer().render(kernel)
            assert what
        renderer().render(lower_kernel(padded(), TARGET))


def lowered_ops() -> list[str]:
    """Ops that may stand in a LINEAR and have no text in C: all must be decomposed before."""
    known = {
        *(op.name for op in ClangRenderer.emitters),
        *(op.name for op in clang._STATEMENTS),
        *(op.name for op in ClangRenderer.vector_emitters),
    }
    functions = {name for name, op in OPS.items() if op.elementwise and op.operands}
    return sorted(functions - known - {"cast", "bitcast"})


@pytest.mark.parametrize("name", lowered_ops())
def test_CST_05_no_op_that_must_be_lowered_reaches_text(name: str) -> None:
    op = OPS[name]
    of_words = name == "dot_bfloat16_pairs"
    x = const(2, int32 if of_words or name in ("idiv", "mod") else float32)
    other = {"condition": const(True, dtypes.bool_)}
    if of_words:
        other["z"] = const(2, float32)
    names = [one for one in op.operands if not one.endswith("?")]
    kernel = with_statements(make(op, tuple([other.get(one, x) for one in names]), None))
    for renderer in (ClangRenderer, LlvmRenderer):
        with pytest.raises((RenderError, VerifyError)):
            renderer().render(kernel)


def test_CST_05_there_are_ops_that_must_be_lowered() -> None:
    assert {"exp", "sin", "pow", "erf", "idiv", "mod"} <= set(lowered_ops())
    assert {"add", "mul", "where"}.isdisjoint(lowered_ops())


@pytest.mark.parametrize("stage", [Stage.TENSOR, Stage.KERNEL, Stage.TILED, Stage.LOWERED])
def test_CST_05_an_op_of_an_earlier_stage_alone_has_no_text(stage: Stage) -> None:
    early = [op for op in OPS.values() if op.stages & stage and not op.stages & Stage.LINEAR]
    assert early
    assert not any(op in EMITTERS or op in STATEMENTS for op in early)
    assert not any(op in ClangRenderer.emitters or op in clang._STATEMENTS for op in early)


class Forgetful(clang._Function):
    """A renderer with a fault: gates of loads are not written."""

    def _load(self, node: Node) -> None:
        gate = gate_of(node)
        super()._load(node if gate is None else make(LOAD, node.src[:1], node.attrs))
        self.names[node] = next(reversed(self.names.values()))


def test_CST_04_a_gate_that_does_not_reach_the_text_is_a_build_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = lower_kernel(padded(), TARGET)
    ClangRenderer().render(kernel)
    monkeypatch.setitem(clang._STATEMENTS, LOAD, Forgetful._load)
    monkeypatch.setattr(clang, "_Function", Forgetful)
    with pytest.raises(RenderError, match="does not test its gate"):
        ClangRenderer().render(kernel)


def test_CST_04_llvm_text_is_audited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = lower_kernel(padded(), TARGET)
    load = STATEMENTS[LOAD]

    def forgetful(function: object, node: Node) -> None:
        plain = make(LOAD, node.src[:1], node.attrs)
        load(function, plain)  # type: ignore[arg-type]
        function.names[node] = function.names[plain]  # type: ignore[attr-defined]

    monkeypatch.setitem(STATEMENTS, LOAD, forgetful)
    with pytest.raises(RenderError, match="does not test its gate"):
        LlvmRenderer().render(kernel)


def texts() -> Iterator[str]:
    for sink in (padded(), sums(), padded(17, dtypes.uint8), padded(9, dtypes.float16)):
        for level in ("x86-64", "x86-64-v3", "x86-64-v4"):
            yield ClangRenderer().render(lower_kernel(sink, x86_level_spec(level, cores=2)))


def test_CST_09_pointers_are_cast_to_types_that_may_alias_alone() -> None:
    for text in texts():
        body = text[text.index("void ", text.index("HELPER")) :]
        for name in re.findall(r"\(\s*(?:const\s+)?([A-Za-z_0-9]+)\s*\*\s*\)", body):
            if name == "int64_t":
                continue  # the fault word, which is one
            definition = re.search(rf"typedef \w[\w ]* {name} __attribute__\(\((.*)\)\);", text)
            assert definition, name
            assert "may_alias" in definition[1], name
        assert "union" not in body


def test_CST_07_memory_is_accessed_through_types_without_alignment() -> None:
    for text in texts():
        accessed = set(re.findall(r"typedef \w[\w ]* (\w+m) __attribute__\(\((.*)\)\);", text))
        assert accessed
        assert all("aligned(1)" in attributes for _, attributes in accessed)
    for sink in (padded(), sums()):
        text = LlvmRenderer().render(lower_kernel(sink, TARGET))
        loads = re.findall(r"(?:load|store) .*?align (\d+)", text)
        masked = re.findall(r"@llvm\.masked\.\w+\.\S+\(.*?i32 (\d+)", text)
        assert loads
        assert {*loads, *masked} == {"1"}


@pytest.mark.parametrize(
    "kind", ["llvm", pytest.param("clang", marks=pytest.mark.needs("program:cc"))]
)
@pytest.mark.parametrize("start", [0, 1, 2, 3, 5, 7, 13, 31, 63, 127])
def test_CST_07_a_kernel_runs_at_any_address(kind: str, start: int) -> None:
    kernel = lower_kernel(sums(), target(LEVEL))
    rng = np.random.default_rng(start)
    x, y, z = (rng.standard_normal(n).astype(np.float32) for n in (216, 24, 9))
    # Each buffer ends at a guard page; odd bytes behind it move its start off any alignment.
    buffers = [bytes(36), x.tobytes(), y.tobytes(), z.tobytes()]
    code = compile_to(kind, LEVEL, kernel)
    plain = execute(kernel, code, Case(sums(), buffers))
    moved = execute(kernel, code, Case(sums(), [one + bytes(start) for one in buffers]))
    assert moved.buffers[0][:36] == plain.buffers[0]
    expected = (np.exp(x.reshape(9, 24).astype(np.float64)) * y).sum(1) + z
    np.testing.assert_allclose(np.frombuffer(plain.buffers[0], np.float32), expected, 1e-4, 1e-5)


def test_CST_08_nothing_claims_that_buffers_do_not_overlap() -> None:
    for sink in (padded(), sums()):
        kernel = lower_kernel(sink, TARGET)
        for text in (ClangRenderer().render(kernel), LlvmRenderer().render(kernel)):
            assert not re.search(r"restrict|noalias|ivdep|independent", text)


@pytest.mark.parametrize("renderer", RENDERERS)
def test_CST_21_a_text_is_the_same_for_every_hash_seed(renderer: Renderer) -> None:
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
from tests.unit.render.test_safety import padded, sums
from tilework.codegen.pipeline import lower_kernel
from tilework.render.c_family.clang import ClangRenderer
from tilework.render.llvm_ir import LlvmRenderer
from tilework.target.known.cpu import x86_level_spec
for sink in (padded(), sums()):
    print({renderer.__name__}().render(lower_kernel(sink, x86_level_spec("x86-64-v3", cores=2))))
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True,
            env={"PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(4)
    }  # fmt: skip
    assert len(found) == 1
    assert len(found.pop()) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("renderer", RENDERERS)
def test_CST_21_a_text_is_the_same_for_32_hash_seeds(renderer: Renderer) -> None:
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
from tests.unit.render.test_safety import sums
from tilework.codegen.pipeline import lower_kernel
from tilework.render.c_family.clang import ClangRenderer
from tilework.render.llvm_ir import LlvmRenderer
from tilework.target.known.cpu import x86_level_spec
print({renderer.__name__}().render(lower_kernel(sums(), x86_level_spec("x86-64-v3", cores=2))))
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True,
            env={"PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(32)
    }  # fmt: skip
    assert len(found) == 1


def test_CST_18_two_builds_give_the_same_bytes() -> None:
    kernel = lower_kernel(sums(), target(LEVEL))
    assert compile_to("llvm", LEVEL, kernel) == compile_to("llvm", LEVEL, kernel)


#: Machines that are named: what makes code for them is nothing that it may depend on.
NAMED = [*(x86_level_spec(level, cores=2) for level in ("x86-64", "x86-64-v4")), aarch64_spec()]


def builds() -> list[str]:
    """Digests of the code of kernels for machines that are named, made by this process."""
    found = []
    for spec in NAMED:
        for sink in (padded(), sums()):
            text = LlvmRenderer().render(lower_kernel(sink, spec))
            found.append(content_hash(LlvmToolchain(spec).compile(text)))
    return found


#: A host with one core in use, other caches, and no more than the baseline of its processor.
ANOTHER_HOST = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
sys.path[:0] = PATHS
from tilework.runtime.platform_linux import LinuxHost
LinuxHost.isa = lambda self: "x86-64"
LinuxHost.cpu_features = lambda self: frozenset({"cmov", "cx8", "fxsr", "sse", "sse2"})
LinuxHost.cache_bytes = lambda self: {"L1": 1 << 14, "L2": 1 << 17, "L3": 1 << 21}
from tests.unit.render.test_safety import builds
from tilework.runtime.host import host_spec
assert host_spec().cores == 1 and host_spec().vector_bits == 128, host_spec()
print(*builds())
"""


def test_CST_18_code_for_a_named_machine_is_the_same_whichever_machine_makes_it(
    tmp_path: Path,
) -> None:
    environment = {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LC_ALL": "C", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", ANOTHER_HOST.replace("PATHS", repr(sys.path))],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == builds(), done.stderr
    assert len({*builds()}) == 6


def test_CST_23_a_kernel_that_cannot_be_built_gives_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = Device["CPU"]
    x = Tensor(np.arange(7, dtype=np.float32)).realize()

    def refuse(source: object) -> bytes:
        raise CompileError("llvm: the module was refused", log="injected")

    with monkeypatch.context() as patch:
        patch.setattr(device.compiler, "build", refuse)
        for _ in range(2):  # the failure is not remembered as anything else
            with pytest.raises(CompileError):
                (x * 3.25 + 11.5).numpy()
    expected = np.arange(7, dtype=np.float32) * np.float32(3.25) + np.float32(11.5)
    assert (x * 3.25 + 11.5).numpy().tolist() == expected.tolist()
