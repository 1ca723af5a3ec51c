"""Every stage of code generation, and machine code, compute what the kernel says."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.codegen import judge, plans, programs

from tilework.testing.kernels import can_run

LEVELS = ["x86-64", "x86-64-v3", "x86-64-v4"]
few = settings(
    max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
HERE = [level for level in LEVELS if can_run(level)]


@pytest.mark.parametrize("family", programs.PROGRAMS)
@few
@given(data=st.data())
def test_every_stage_computes_what_the_kernel_says(family: str, data: st.DataObject) -> None:
    case = data.draw(programs.PROGRAMS[family])
    judge.check_stages(case, data.draw(st.sampled_from(LEVELS)))


@pytest.mark.parametrize("family", programs.PROGRAMS)
@few
@given(data=st.data())
def test_every_legal_plan_computes_what_the_kernel_says(family: str, data: st.DataObject) -> None:
    case = data.draw(programs.PROGRAMS[family])
    level = data.draw(st.sampled_from(LEVELS))
    judge.check_stages(case, level, data.draw(plans.plans(case, level)))


@pytest.mark.parametrize("family", programs.PROGRAMS)
@few
@given(data=st.data())
def test_every_legal_plan_becomes_right_machine_code(family: str, data: st.DataObject) -> None:
    case = data.draw(programs.PROGRAMS[family])
    level = data.draw(st.sampled_from(HERE))
    judge.check_machine(case, "llvm", level, data.draw(plans.plans(case, level)))


@pytest.mark.parametrize("family", programs.PROGRAMS)
@few
@given(data=st.data())
def test_CST_20_llvm_agrees_with_the_interpreter(family: str, data: st.DataObject) -> None:
    case = data.draw(programs.PROGRAMS[family])
    judge.check_machine(case, "llvm", data.draw(st.sampled_from(HERE)))


@pytest.mark.needs("program:cc")
@pytest.mark.parametrize("family", programs.PROGRAMS)
@few
@given(data=st.data())
def test_CST_20_c_agrees_with_the_interpreter(family: str, data: st.DataObject) -> None:
    case = data.draw(programs.PROGRAMS[family])
    judge.check_machine(case, "clang", data.draw(st.sampled_from(HERE)))
