"""The order of the passes, their events, and their verification."""

import subprocess
import sys

import pytest

from tilework.base import settings, trace
from tilework.base.errors import VerifyError
from tilework.codegen import pipeline
from tilework.codegen.passes.run import PassRun
from tilework.dtypes import float32
from tilework.ir.build import const, const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.stage import Stage
from tilework.target.known.cpu import x86_level_spec

TARGET = x86_level_spec("x86-64-v3", cores=2)


def kernel() -> Node:
    i = RANGE(const_index(100), attrs=RangeAttrs(0))
    x = LOAD(INDEX(PARAM(attrs=ParamAttrs(1, (100,), float32)), i))
    target = INDEX(PARAM(attrs=ParamAttrs(0, (100,), float32)), i)
    return SINK(STORE(target, math.ADD(x, const(1, float32))))


@pytest.mark.parametrize(("earlier", "later", "why"), pipeline.ORDER)
def test_the_passes_stand_in_the_order_that_they_need(earlier: str, later: str, why: str) -> None:
    names = list(pipeline.PASSES)
    assert names.index(earlier) < names.index(later), why


def test_each_pass_reports_its_end() -> None:
    events: list[trace.Event] = []
    with trace.subscribe(events.append):
        pipeline.lower_kernel(kernel(), TARGET)
    names = [event.name for event in events if isinstance(event, trace.PassEnded)]
    assert names == [f"codegen.{name}" for name in pipeline.PASSES]


def spoil(sink: Node) -> Node:
    """A pass that leaves an op which is illegal after it."""
    return STORE(*sink.src[0].src)


@pytest.mark.parametrize("mode", ["pass", "stage"])
def test_an_illegal_result_is_refused_by_the_name_of_its_pass(mode: str) -> None:
    with settings.override(verify=mode):
        run = PassRun({"spoil": Stage.TILED}, kernel(), Stage.KERNEL)
        with pytest.raises(VerifyError, match="after spoil"):
            run.run("spoil", kernel(), spoil)


def test_inside_a_stage_only_the_thorough_mode_verifies() -> None:
    with settings.override(verify="stage"):
        run = PassRun({"spoil": Stage.KERNEL}, kernel(), Stage.KERNEL)
        assert run.run("spoil", kernel(), spoil) is spoil(kernel())


def test_verification_can_be_switched_off() -> None:
    with settings.override(verify="off"):
        run = PassRun({"spoil": Stage.LINEAR}, spoil(kernel()), Stage.KERNEL)
        assert run.run("spoil", kernel(), spoil) is spoil(kernel())


def test_kernels_of_a_processor_load_nothing_that_is_for_blocks_of_threads() -> None:
    script = (
        "import sys, tilework.codegen.pipeline\n"
        "print(*[n for n in sys.modules if n.startswith('tilework.codegen.')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "tilework.codegen.passes.expand" in loaded
    assert not loaded & {"tilework.codegen.gpu.pipeline", "tilework.codegen.gpu.sort_block"}
    assert not [name for name in loaded if name.startswith("tilework.codegen.matrix.")]
