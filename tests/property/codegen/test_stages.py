"""Every stage of code generation computes what the kernel says."""

import judge
import programs
import pytest
from hypothesis import given
from hypothesis import strategies as st

LEVELS = ["x86-64", "x86-64-v3", "x86-64-v4"]


@pytest.mark.parametrize("family", programs.PROGRAMS)
@given(data=st.data())
def test_every_stage_computes_what_the_kernel_says(family: str, data: st.DataObject) -> None:
    case = data.draw(programs.PROGRAMS[family])
    judge.check_stages(case, data.draw(st.sampled_from(LEVELS)))
