"""Compares what the stages of code generation, and machine code, make of a kernel."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tilework.codegen.plan.plan import Plan
from tilework.dtypes import DType
from tilework.ir.node import toposort
from tilework.ir.ops.memory import PARAM
from tilework.ir.ops.tensor import REDUCE, SCAN, Fold
from tilework.testing.kernels import Case, Outcome, interpret, outcomes, run_on_machine, target

NUMPY = {
    "bool": np.dtype(np.bool_),
    "fp8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "fp8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}


def numpy_dtype(dtype: DType) -> np.dtype:
    """The NumPy dtype of an element type."""
    return NUMPY.get(dtype.name) or np.dtype(dtype.name)


def dtypes_of(case: Case) -> dict[int, DType]:
    return {n.attrs.slot: n.attrs.dtype for n in toposort(case.sink) if n.op is PARAM}


def assert_same(
    case: Case, expected: Outcome, found: Outcome, *, rtol: float = 0.0, atol: float = 0.0
) -> None:
    """Equal bits, NaNs as NaNs; floats within tolerances if any is given.

    The sign of a zero counts only where no sum is involved: it depends on the order of additions.
    """
    sums = any(n.op in (REDUCE, SCAN) and n.attrs.fold is Fold.ADD for n in toposort(case.sink))
    assert found.faults == expected.faults, found.stage
    dtypes = dtypes_of(case)
    for slot, (want, have) in enumerate(zip(expected.buffers, found.buffers, strict=True)):
        if slot not in dtypes:
            assert want == have, f"{found.stage}: buffer {slot} is no argument, yet it changed"
            continue
        kind = numpy_dtype(dtypes[slot])
        x, y = np.frombuffer(want, kind), np.frombuffer(have, kind)
        if not dtypes[slot].is_float:
            np.testing.assert_array_equal(y, x, err_msg=f"{found.stage}, buffer {slot}")
            continue
        with np.errstate(invalid="ignore"):
            x64, y64 = x.astype(np.float64), y.astype(np.float64)
        nan = np.isnan(x64)
        message = f"{found.stage}, buffer {slot}"
        np.testing.assert_array_equal(np.isnan(y64), nan, err_msg=message)
        if rtol or atol or sums:
            np.testing.assert_allclose(y64[~nan], x64[~nan], rtol, atol, err_msg=message)
        else:
            raw = f"u{kind.itemsize}"
            bits = x.view(raw)[~nan], y.view(raw)[~nan]
            np.testing.assert_array_equal(bits[1], bits[0], err_msg=message)


def expected_outcome(case: Case) -> Outcome:
    """What the interpreter makes of the kernel as it was given."""
    return interpret(case, case.sink, "kernel")


def check_stages(
    case: Case, level: str = "host", plan: Plan | None = None, **tolerances: float
) -> None:
    """Every stage computes what the kernel says, by the interpreter."""
    expected = expected_outcome(case)
    for outcome in outcomes(case, target(level), plan):
        assert_same(case, expected, outcome, **tolerances)


def check_machine(
    case: Case, kind: str, level: str = "host", plan: Plan | None = None, **tolerances: float
) -> None:
    """Machine code computes what the kernel says, at both ends of guarded buffers."""
    expected = expected_outcome(case)
    for at_start in (False, True):
        found = run_on_machine(case, kind, level, plan, at_start=at_start, split_tasks=at_start)
        assert_same(case, expected, found, **tolerances)
