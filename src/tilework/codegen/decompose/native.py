"""Elementary functions that targets have of their own, and how far off they were measured.

    keeps("exp", "float32", target)    # whether strict arithmetic may use it

A target's own function stands in for our construction only while its largest error, over all
inputs, is within the bound that is promised for the function; one that was not measured, or misses
it, is used only where `fp_mode` promises less.  `python -m benchmarks.gpu.native` measures those of
a card (docs/cuda.md has what it found), and fails where they are farther off than is written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base import settings

if TYPE_CHECKING:
    from tilework.target.spec import TargetSpec

#: What strict arithmetic promises, in units in the last place.
BOUNDS: Final[dict[str, float]] = {"exp_float32": 2.0}
#: By instruction set and function the largest error over all inputs.
MEASURED: Final[dict[tuple[str, str], float]] = {("ptx", "exp_float32"): 1.95}


#: What IEEE 754 defines: whoever has it rounds correctly.
_EXACT: Final = frozenset({"sqrt", "reciprocal", "mulacc", "fmod", "fdiv"})


def keeps(op: str, dtype: str, target: TargetSpec) -> bool:
    """Whether a target's own `op_dtype` is used as arithmetic stands now.

    Args:
        op: the function.
        dtype: of its operands.
        target: who has it.
    """
    if op in _EXACT or settings.current().fp_mode != "strict":
        return True
    name = f"{op}_{dtype}"
    bound, error = BOUNDS.get(name), MEASURED.get((target.isa, name))
    return bound is not None and error is not None and error <= bound
