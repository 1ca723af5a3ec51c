"""Derive every minimax coefficient of the transcendental functions and write coefficients.py.

Usage: `python scripts/derive_polynomials.py` prints the error of each polynomial; `--write` also
replaces `src/tilework/codegen/decompose/coefficients.py`.

Method: Remez exchange in multi-precision on a linear basis, weighted so that the error is
relative to the function's final result. The coefficients are rounded to the target's precision one
after another, the lowest power first; after each one the others are fitted anew, so that they
absorb its rounding error.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath as mp

mp.mp.dps = 60
Function = Callable[[mp.mpf], mp.mpf]
OUTPUT = pathlib.Path(__file__).parents[1] / "src/tilework/codegen/decompose/coefficients.py"
GRID = 600


def round_to(value: mp.mpf, bits: int) -> mp.mpf:
    """Round `value` to `bits` bits of mantissa."""
    if value == 0:
        return value
    mantissa, exponent = mp.frexp(value)
    return mp.ldexp(mp.nint(mp.ldexp(mantissa, bits)), int(exponent) - bits)


@dataclass(frozen=True)
class Fit:
    """One polynomial to derive.

    Args:
        name: its key in the table of coefficients.py.
        target: what the polynomial approximates.
        terms: number of coefficients in float32 and in float64; 0 leaves the format out.
        low: left end of the interval.
        high: right end of the interval, in float32 and in float64.
        weight: factor that turns the polynomial's error into the result's relative error.
        note: what the table is, in one line.
    """

    name: str
    target: Function
    terms: tuple[int, int]
    low: mp.mpf
    high: tuple[mp.mpf, mp.mpf]
    weight: Function
    note: str


def _extrema(error: Sequence[mp.mpf], points: Sequence[mp.mpf], count: int) -> list[mp.mpf]:
    """Return `count` points of alternating error with the largest magnitudes."""
    runs: list[tuple[mp.mpf, mp.mpf]] = []
    for point, value in zip(points, error, strict=True):
        if runs and (runs[-1][1] < 0) == (value < 0):
            if abs(value) > abs(runs[-1][1]):
                runs[-1] = (point, value)
        else:
            runs.append((point, value))
    while len(runs) > count:
        if abs(runs[0][1]) < abs(runs[-1][1]):
            runs.pop(0)
        else:
            runs.pop()
    return [point for point, _ in runs]


def remez(fit: Fit, high: mp.mpf, terms: int, fixed: list[mp.mpf]) -> tuple[list[mp.mpf], mp.mpf]:
    """Return all coefficients and the largest weighted error; `fixed` are the first of them."""
    low = mp.mpf(fit.low)
    middle, half = (low + high) / 2, (high - low) / 2
    # Chebyshev spacing packs the grid where the extrema are sharpest.
    points = [middle - half * mp.cos(mp.pi * (i + mp.mpf(1) / 7) / GRID) for i in range(GRID)]
    points = [p for p in (low, *points[1:], high) if p != 0]
    # The power that the fixed terms leave over goes into the weight, so that the free part is a
    # full polynomial; where it vanishes the error does too.
    count = len(fixed)
    weights = [abs(fit.weight(p) * p**count) for p in points]
    floor = max(weights) * mp.mpf("1e-20")
    points = [p for p, w in zip(points, weights, strict=True) if w > floor]
    weights = [w for w in weights if w > floor]
    rest = [
        (fit.target(p) - mp.polyval([*fixed[::-1], 0], p) / p) / p**count
        if count
        else fit.target(p)
        for p in points
    ]
    size = terms - count + 1
    if size == 1:
        return fixed, max(abs(w * r) for w, r in zip(weights, rest, strict=True))
    step = (len(points) - 1) / (size - 1)
    chosen = [round(i * step) for i in range(size)]
    best, worst = [*fixed, *[mp.mpf(0)] * (size - 1)], mp.inf
    for _ in range(30):
        matrix, right = mp.matrix(size, size), mp.matrix(size, 1)
        for row, k in enumerate(chosen):
            for column in range(size - 1):
                matrix[row, column] = points[k] ** column
            matrix[row, size - 1] = (-1) ** row / weights[k]
            right[row] = rest[k]
        solution = list(mp.lu_solve(matrix, right))
        free = solution[:-1]
        error = [
            w * (r - mp.polyval(free[::-1], p))
            for w, r, p in zip(weights, rest, points, strict=True)
        ]
        largest = max(abs(e) for e in error)
        if largest < worst:
            best, worst = [*fixed, *free], largest
        if largest <= abs(solution[-1]) * mp.mpf("1.005"):
            break
        following = _extrema(error, range(len(points)), size)
        if len(following) < size:
            break
        chosen = following
    return best, worst


def derive(fit: Fit, bits: int) -> tuple[list[mp.mpf], mp.mpf]:
    """Return the rounded coefficients and the largest weighted error with them."""
    wide = bits == 53
    terms, high = fit.terms[wide], mp.mpf(fit.high[wide])
    # The rounding of a float64 coefficient above the first two is too small to be worth refitting.
    fixed: list[mp.mpf] = []
    while len(fixed) < (2 if wide else terms):
        fixed.append(round_to(remez(fit, high, terms, fixed)[0][len(fixed)], bits))
    if wide:
        fixed = [round_to(c, bits) for c in remez(fit, high, terms, fixed)[0]]
    return remez(fit, high, terms, fixed)


def _log_tail(f: mp.mpf) -> mp.mpf:
    return (mp.log1p(f) - f) / f**2


def _square_root(function: Function) -> Function:
    """Return `z -> function(sqrt(z))`, for even functions written in their square."""
    return lambda z: function(mp.sqrt(z))


def _odd(function: Function) -> tuple[Function, Function]:
    """Return target and weight of `(function(t) - t) / t**3` in t**2."""
    return (
        _square_root(lambda t: (function(t) - t) / t**3),
        _square_root(lambda t: t**3 / function(t)),
    )


LN2_HALF = mp.log(2) / 2 * mp.mpf("1.0001")
QUARTER = (mp.pi / 4 * mp.mpf("1.0001")) ** 2
OCTAVE = (mp.sqrt(mp.mpf("0.49999")) - 1, (mp.sqrt(mp.mpf("2.0001")) - 1,) * 2)
LOG2_E = 1 / mp.log(2)
LOG10_E = 1 / mp.log(10)
TINY = mp.mpf(2) ** -40
HALF_TURN = mp.mpf("0.25001")
ROOT_HALF = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)


def _log_fit(name: str, scale: mp.mpf, note: str) -> Fit:
    return Fit(
        name,
        lambda f: scale * _log_tail(f),
        (LOG_TERMS, 22),
        *OCTAVE,
        lambda f: f**2 / mp.log1p(f) / scale,
        f"{note}, 1 + f within sqrt(2)**+-1",
    )


LOG_TERMS = 9
FITS = [
    Fit(
        "EXP2",
        lambda r: (mp.mpf(2) ** r - 1) / r,
        (6, 11),
        -0.5,
        (0.5, 0.5),
        lambda r: r * mp.mpf(2) ** -r,
        "(2**r - 1) / r for |r| <= 1/2",
    ),
    Fit(
        "EXP",
        lambda r: mp.expm1(r) / r,
        (6, 11),
        -LN2_HALF,
        (LN2_HALF, LN2_HALF),
        lambda r: r * mp.exp(-r),
        "(exp(r) - 1) / r for |r| <= ln(2)/2",
    ),
    Fit(
        "EXPM1",
        lambda r: (mp.expm1(r) - r) / r**2,
        (6, 11),
        -LN2_HALF,
        (LN2_HALF, LN2_HALF),
        lambda r: r**2 / mp.expm1(r),
        "(expm1(r) - r) / r**2 for |r| <= ln(2)/2",
    ),
    _log_fit("LOG", mp.mpf(1), "(log1p(f) - f) / f**2"),
    _log_fit("LOG2", LOG2_E, "(log1p(f) - f) / f**2 / ln(2)"),
    _log_fit("LOG10", LOG10_E, "(log1p(f) - f) / f**2 / ln(10)"),
    Fit(
        "SIN",
        _odd(mp.sin)[0],
        (3, 7),
        TINY,
        (QUARTER, QUARTER),
        _odd(mp.sin)[1],
        "(sin(r) - r) / r**3 in r**2, for |r| <= pi/4",
    ),
    Fit(
        "COS",
        _square_root(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4),
        (3, 7),
        TINY,
        (QUARTER, QUARTER),
        _square_root(lambda r: r**4 / mp.cos(r)),
        "(cos(r) - 1 + r**2/2) / r**4 in r**2, for |r| <= pi/4",
    ),
    Fit(
        "ATAN",
        _odd(mp.atan)[0],
        (9, 22),
        TINY,
        (1, 1),
        _odd(mp.atan)[1],
        "(atan(t) - t) / t**3 in t**2, |t| <= 1",
    ),
    Fit(
        "ASIN",
        _odd(mp.asin)[0],
        (5, 13),
        TINY,
        (0.25, 0.25),
        _odd(mp.asin)[1],
        "(asin(t) - t) / t**3 in t**2, |t| <= 1/2",
    ),
    Fit(
        "SINH",
        _odd(mp.sinh)[0],
        (4, 8),
        TINY,
        (1, 1),
        _odd(mp.sinh)[1],
        "(sinh(t) - t) / t**3 in t**2, |t| <= 1",
    ),
    Fit(
        "TANH",
        _odd(mp.tanh)[0],
        (4, 11),
        TINY,
        (0.3035, 0.3035),
        _odd(mp.tanh)[1],
        "(tanh(t) - t) / t**3 in t**2, |t| <= 0.55",
    ),
    Fit(
        "ERF",
        _square_root(lambda t: (mp.erf(t) - 2 / mp.sqrt(mp.pi) * t) / t**3),
        (5, 11),
        TINY,
        (0.84, 0.84),
        _square_root(lambda t: t**3 / mp.erf(t)),
        "(erf(t) - 2/sqrt(pi)*t) / t**3 in t**2, |t| <= 0.9",
    ),
    Fit(
        "LOG2_ERFC",
        lambda t: mp.log(mp.erfc(t), 2),
        (7, 19),
        0.89,
        (3.94, 6.01),
        lambda t: mp.erfc(t) / mp.erf(t) * mp.log(2),
        "log2(erfc(t)) for t from 0.9; error relative to erf(t)",
    ),
    Fit(
        "SIN_HALF_TURN",
        _square_root(lambda f: mp.sin(mp.pi * f) / f),
        (0, 6),
        TINY,
        (0, HALF_TURN),
        _square_root(lambda f: f / mp.sin(mp.pi * f)),
        "sin(pi*f) / f in f**2, for |f| <= 1/2, to float32 accuracy",
    ),
    Fit(
        "SIN_QUADRANT",
        _square_root(lambda f: mp.sin(mp.pi / 2 * f) / f),
        (0, 5),
        TINY,
        (0, HALF_TURN),
        _square_root(lambda f: f / mp.sin(mp.pi / 2 * f)),
        "sin(pi/2*f) / f in f**2, for |f| <= 1/2, to float32 accuracy",
    ),
    Fit(
        "COS_QUADRANT",
        _square_root(lambda f: mp.cos(mp.pi / 2 * f)),
        (0, 6),
        TINY,
        (0, HALF_TURN),
        _square_root(lambda f: 1 / mp.cos(mp.pi / 2 * f)),
        "cos(pi/2*f) in f**2, for |f| <= 1/2, to float32 accuracy",
    ),
    Fit(
        "LOG2_WIDE",
        lambda f: mp.log1p(f) / f * LOG2_E,
        (0, 14),
        *OCTAVE,
        lambda f: f / mp.log1p(f) / LOG2_E,
        "log2(1 + f) / f for 1 + f within sqrt(2)**+-1, for pow of float32",
    ),
    Fit(
        "EXP2_WIDE",
        lambda r: mp.mpf(2) ** r,
        (0, 8),
        -0.5,
        (0, 0.5),
        lambda r: mp.mpf(2) ** -r,
        "2**r for |r| <= 1/2, for pow of float32",
    ),
    Fit(
        "ATANH_TAIL",
        _square_root(lambda s: (mp.atanh(s) / s - 1 - s**2 / 3) / s**4),
        (0, 8),
        TINY,
        (0, ROOT_HALF**2 * mp.mpf("1.001")),
        _square_root(lambda s: s**5 / mp.atanh(s)),
        "(atanh(s)/s - 1 - s**2/3) / s**4 in s**2, for pow of float64",
    ),
]

# Constants as unevaluated sums of words: value and the bits of each word.
WORDS: dict[str, tuple[mp.mpf, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "LN2": (mp.log(2), ((16, 24), (42, 53))),
    "LN2_ROUNDED": (mp.log(2), ((24,), (53,))),
    "LOG2_E": (LOG2_E, ((24, 24), (53, 53))),
    "LOG10_E": (LOG10_E, ((24, 24), (53, 53))),
    "LOG10_2": (mp.log(2, 10), ((24, 24), (53, 53))),
    "HALF_PI": (mp.pi / 2, ((24, 24, 24), (53, 53, 53))),
    "TWO_OVER_LN2": (2 * LOG2_E, ((24, 24), (53, 53))),
    "THIRD": (mp.mpf(1) / 3, ((24, 24), (53, 53))),
}
# Inputs at and above 2**SWITCH[i] are divided by 2**SHIFT[i]; see trigonometric.py.
SWITCH = (44, 65, 86, 107)
SHIFT = (0, 21, 42, 63, 84)
TURN_WORDS = 20


def words_of(value: mp.mpf, widths: tuple[int, ...]) -> list[mp.mpf]:
    """Split `value` into rounded words of the given widths, whose sum is nearest to it."""
    words: list[mp.mpf] = []
    for width in widths:
        words.append(round_to(value - mp.fsum(words), width))
    return words


def words_from_below(value: mp.mpf, bits: int) -> list[mp.mpf]:
    """Split `value` into two words of which the second is not negative, so that -0 stays -0."""
    first = round_to(value * (1 - mp.ldexp(1, -bits)), bits)
    return [first, round_to(value - first, bits)]


def periodic_words(turns: mp.mpf, period: int) -> str:
    """Return the table of 2**shift * turns modulo `period`, two float64 words for each shift."""
    rows = []
    for shift in SHIFT:
        with mp.workdps(120):
            value = +turns * mp.mpf(2) ** shift
            value -= period * mp.nint(value / period)
            # Unshifted inputs include -0, whose sign a negative second word would lose.
            high, low = words_of(value, (53, 53)) if shift else words_from_below(value, 53)
        rows.append(f"    ({float(high)!r}, {float(low)!r}),\n")
    return "".join(rows)


def reduction_text() -> str:
    """Return the lines of coefficients.py that reduce angles."""
    lines = [f"REDUCE_SWITCH = {SWITCH!r}\nREDUCE_SHIFT = {SHIFT!r}\n"]
    with mp.workdps(400):
        inverse = 1 / +mp.pi
        bits = int(mp.floor(inverse / 2 * mp.mpf(2) ** (64 * TURN_WORDS)))
    with mp.workdps(120):
        lines.append(f"HALF_TURNS = (\n{periodic_words(inverse, 2)})\n")
        lines.append(f"QUADRANTS = (\n{periodic_words(2 * inverse, 4)})\n")
    words = [bits >> (64 * i) & (2**64 - 1) for i in reversed(range(TURN_WORDS))]
    lines.append("# 1/(2*pi) as a binary fraction, 64 bits a word, the highest first.\nTURN = (\n")
    lines += [f"    0x{word:016X},\n" for word in words]
    return "".join([*lines, ")\n"])


def table_text(bits: int) -> str:
    """Return one format's dictionary of constants and polynomials."""
    name, wide = ("FLOAT64", True) if bits == 53 else ("FLOAT32", False)
    lines = [f"{name}: Final[dict[str, tuple[float, ...]]] = {{\n"]
    for key, (value, widths) in WORDS.items():
        words = ", ".join(repr(float(w)) for w in words_of(value, widths[wide]))
        lines.append(f"    {key!r}: ({words},),\n")
    high, low = words_from_below(2 / mp.sqrt(mp.pi), bits)
    lines.append(f"    'ERF_SLOPE': ({float(high)!r}, {float(low)!r}),\n")
    for fit in FITS:
        if fit.terms[wide]:
            coefficients, worst = derive(fit, bits)
            values = "".join(f"        {float(c)!r},\n" for c in coefficients)
            error = f"relative error at most 2**{float(mp.log(worst, 2)):.1f}"
            print(name, fit.name, error, flush=True)
            lines.append(
                f"    # {fit.note};\n    # {error}.\n    {fit.name!r}: (\n{values}    ),\n"
            )
    return "".join([*lines, "}\n"])


HEADER = '''"""Minimax coefficients, lowest power first; written by scripts/derive_polynomials.py.

Tables for float32 hold values that float32 represents exactly.
"""

from typing import Final

'''


def main() -> None:
    """Derive all tables; write them when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    text = HEADER + reduction_text() + "\n" + table_text(24) + "\n" + table_text(53)
    if arguments.write:
        OUTPUT.write_text(text)


if __name__ == "__main__":
    main()
