"""Measure what a card computes by itself, over all inputs: how far off, and where.

    python -m benchmarks.gpu.native [--bits 32]

Elementary functions of float32 that the target names as its own (`exp`), the square root and the
reciprocal run over all 2^32 inputs, quotients and remainders over as many pairs of random bits.
The exact value is that of the same function in float64 on the card, our construction, which was
measured against 113-bit arithmetic (docs/accuracy.md); its own error is 2^-29 of a unit here.
Ends with 1 where a function is farther off than `codegen.decompose.native` says, or wrong where no
number comes out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np

from tilework import Tensor, dtypes, jit
from tilework.codegen.decompose.native import BOUNDS, MEASURED
from tilework.engine.device import Device

_CHUNK_BITS = 26
_EXACT = 0.5
#: Half a unit beyond the greatest float32: from there on a result is infinite.
_EDGE = float(np.finfo(np.float32).max) * (1 + 2.0**-25)
#: What each function is called in the table, with its operands.
FUNCTIONS: dict[str, tuple[int, Callable[..., Tensor]]] = {
    "exp": (1, lambda x: x.exp()),
    "sqrt": (1, lambda x: x.sqrt()),
    "reciprocal": (1, lambda x: x.reciprocal()),
    "quotient": (2, lambda x, y: x / y),
    "remainder": (2, lambda x, y: x.fmod(y)),
}


def ulp_errors(found: Tensor, exact: Tensor) -> Tensor:
    """The distance of float32 values to exact ones, in units in the last place of the latter.

    Results that are not finite are right (0) or wrong (infinity), as in `testing.accuracy`.
    """
    exponents = ((exact.bitcast(dtypes.int64) >> 52) & 2047) - 1023
    scale = ((23 - exponents.maximum(-126) + 1023) << 52).bitcast(dtypes.float64)
    distance = (found.double() - exact).abs() * scale
    is_huge = exact.abs() >= _EDGE
    is_right = found.isinf() & ((found < 0) == (exact < 0))
    error = is_huge.where(is_right.where(0.0, float("inf")), distance)
    error = exact.isnan().where(found.isnan().where(0.0, float("inf")), error)
    return error.isnan().where(float("inf"), error)


def measure(name: str, bits: int) -> tuple[float, float]:
    """The largest error of a function, and the (first) operand at which it is."""
    operands, function = FUNCTIONS[name]

    @jit
    def step(start: Tensor) -> tuple[Tensor, Tensor]:
        words = Tensor.arange(1 << _CHUNK_BITS, dtype=dtypes.int32, device=start.device) + start
        given = [words.bitcast(dtypes.float32)]
        if operands == 2:  # a mixture of bits for each number
            mixed = words * np.int32(-1640531527)
            mixed = (mixed ^ (mixed >> 15)) * np.int32(-2048144789)
            given = [mixed.bitcast(dtypes.float32), ((mixed ^ (mixed >> 13)) * np.int32(-1028477387)
                     ).bitcast(dtypes.float32)]  # fmt: skip
        errors = ulp_errors(function(*given), function(*[each.double() for each in given]))
        worst = errors.max()
        return worst, (errors == worst).where(given[0], float("-inf")).max()

    worst, place = -1.0, 0.0
    for number in range(1 << max(bits - _CHUNK_BITS, 0)):
        first = np.int64(number << _CHUNK_BITS).astype(np.int32)
        error, at = step(Tensor(np.array([first], np.int32), device=Device.DEFAULT).realize())
        if error.item() > worst:
            worst, place = error.item(), at.item()
    return worst, place


def main() -> int:
    """Measure all, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bits", type=int, default=32)
    parser.add_argument("--device", default="CUDA")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    Device.DEFAULT = given.device
    device = Device[given.device]
    print(f"{date.today()}, {device.spec.name}, {device.backend.probe().driver}")
    print(f"compiler {device.compiler.key}; {1 << given.bits} inputs or pairs of float32")
    print("| function | largest error (ULP) | at | bound |\n| --- | --- | --- | --- |")
    wrong = False
    for name in FUNCTIONS:
        if given.only in name:
            worst, place = measure(name, given.bits)
            own = MEASURED.get((device.spec.isa, f"{name}_float32"))
            bound: Any = _EXACT if own is None else own
            wrong |= not worst <= bound + 1e-6
            promised = BOUNDS.get(f"{name}_float32", _EXACT)
            print(f"| {name} | {worst:.4f} | `{place.hex()}` | {promised} |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
