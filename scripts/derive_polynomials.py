"""Derive every minimax coefficient of the transcendental functions and write coefficients.py.

Usage: `python scripts/derive_polynomials.py [NAME ...]` prints the named tables (all by default);
`--write` also replaces `src/tilework/codegen/decompose/coefficients.py`.

Method: Remez exchange in multi-precision on a linear basis, weighted so that the error is
relative to the function's final result. The coefficients are rounded to the target's precision one
after another, the lowest power first; after each one the others are fitted anew, so that they
absorb its rounding error.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
        name: the constant's name in coefficients.py.
        target: what the polynomial approximates.
        powers: exponents of its terms, in the order of the table.
        low: left end of the interval.
        high: right end of the interval.
        weight: factor that turns the polynomial's error into the result's relative error.
        bits: mantissa bits of each coefficient; 24 for float32, 53 for float64.
        fixed: coefficients decided beforehand, by position.
        note: what the table is, in one line.
    """

    name: str
    target: Function
    powers: tuple[int, ...]
    low: mp.mpf
    high: mp.mpf
    weight: Function
    bits: int
    note: str
    fixed: dict[int, mp.mpf] = field(default_factory=dict)


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


def remez(fit: Fit, fixed: dict[int, mp.mpf]) -> tuple[list[mp.mpf], mp.mpf]:
    """Return all coefficients and the largest weighted error, `fixed` ones being given."""
    free = [i for i in range(len(fit.powers)) if i not in fixed]
    low, high = mp.mpf(fit.low), mp.mpf(fit.high)
    middle, half = (low + high) / 2, (high - low) / 2
    # Chebyshev spacing packs the grid where the extrema are sharpest.
    points = [middle - half * mp.cos(mp.pi * (i + mp.mpf(1) / 7) / GRID) for i in range(GRID)]
    points = [low, *points[1:], high]
    points = [p for p in points if p != 0]
    weights = [fit.weight(p) for p in points]
    rest = [
        fit.target(p) - sum((fixed[i] * p ** fit.powers[i] for i in fixed), mp.mpf(0))
        for p in points
    ]
    lookup = {p: i for i, p in enumerate(points)}
    coefficients = [fixed.get(i, mp.mpf(0)) for i in range(len(fit.powers))]
    if not free:
        return coefficients, max(abs(w * r) for w, r in zip(weights, rest, strict=True))
    size = len(free) + 1
    step = (len(points) - 1) / (size - 1)
    chosen = [points[round(i * step)] for i in range(size)]
    best, worst = coefficients, mp.inf
    for _ in range(30):
        matrix, right = mp.matrix(size, size), mp.matrix(size, 1)
        for row, p in enumerate(chosen):
            k = lookup[p]
            for column, i in enumerate(free):
                matrix[row, column] = p ** fit.powers[i]
            matrix[row, size - 1] = (-1) ** row / weights[k]
            right[row] = rest[k]
        solution = mp.lu_solve(matrix, right)
        for column, i in enumerate(free):
            coefficients[i] = solution[column]
        error = [
            weights[k] * (rest[k] - sum(coefficients[i] * p ** fit.powers[i] for i in free))
            for k, p in enumerate(points)
        ]
        largest = max(abs(e) for e in error)
        if largest < worst:
            best, worst = list(coefficients), largest
        if largest <= abs(solution[size - 1]) * mp.mpf("1.005"):
            break
        following = _extrema(error, points, size)
        if len(following) < size:
            break
        chosen = following
    return best, worst


def lawson(fit: Fit, fixed: dict[int, mp.mpf]) -> tuple[list[mp.mpf], mp.mpf]:
    """As `remez`, by reweighted least squares, for bases that all vanish inside the interval.

    Once the constant term is fixed, the others vanish at 0, so that an error curve need not
    alternate and the exchange has no ground to stand on.
    """
    free = [i for i in range(len(fit.powers)) if i not in fixed]
    low, high = mp.mpf(fit.low), mp.mpf(fit.high)
    middle, half, count = (low + high) / 2, (high - low) / 2, GRID // 3
    points = [middle - half * mp.cos(mp.pi * (i + mp.mpf(1) / 7) / count) for i in range(count)]
    weights = [fit.weight(p) for p in points]
    rest = [
        w * (fit.target(p) - sum((fixed[i] * p ** fit.powers[i] for i in fixed), mp.mpf(0)))
        for w, p in zip(weights, points, strict=True)
    ]
    rows = [[w * p ** fit.powers[i] for i in free] for w, p in zip(weights, points, strict=True)]
    best, worst = [mp.mpf(0)] * len(fit.powers), mp.inf
    emphasis = [mp.mpf(1)] * count
    for _ in range(40):
        matrix, right = mp.matrix(len(free), len(free)), mp.matrix(len(free), 1)
        for a in range(len(free)):
            right[a] = mp.fsum(e * r[a] * y for e, r, y in zip(emphasis, rows, rest, strict=True))
            for b in range(a, len(free)):
                entry = mp.fsum(e * r[a] * r[b] for e, r in zip(emphasis, rows, strict=True))
                matrix[a, b] = matrix[b, a] = entry
        solution = mp.lu_solve(matrix, right)
        error = [
            abs(y - mp.fsum(c * t for c, t in zip(solution, r, strict=True)))
            for r, y in zip(rows, rest, strict=True)
        ]
        if max(error) < worst:
            worst = max(error)
            best = [fixed.get(i, mp.mpf(0)) for i in range(len(fit.powers))]
            for column, i in enumerate(free):
                best[i] = solution[column]
        total = mp.fsum(e * r for e, r in zip(emphasis, error, strict=True))
        emphasis = [e * r / total for e, r in zip(emphasis, error, strict=True)]
    return best, worst


def derive(fit: Fit) -> tuple[list[mp.mpf], mp.mpf]:
    """Return the rounded coefficients and the largest weighted error with them."""
    fixed = dict(fit.fixed)
    for i in range(len(fit.powers)):
        if i not in fixed:
            solve = lawson if fixed and fit.low < 0 < fit.high else remez
            fixed[i] = round_to(solve(fit, fixed)[0][i], fit.bits)
    return remez(fit, fixed)


def _log_tail(f: mp.mpf) -> mp.mpf:
    return (mp.log1p(f) - f) / f**2


def _root_free(function: Function) -> Function:
    """Return `z -> function(sqrt(z))`, for even functions written in their square."""
    return lambda z: function(mp.sqrt(z))


LN2_HALF = mp.log(2) / 2 * mp.mpf("1.0001")
QUARTER = (mp.pi / 4 * mp.mpf("1.0001")) ** 2
OCTAVE = (mp.sqrt(mp.mpf("0.49999")) - 1, mp.sqrt(mp.mpf("2.0001")) - 1)
LOG2_E = 1 / mp.log(2)
LOG10_E = 1 / mp.log(10)
TINY = mp.mpf(2) ** -40

FITS = [
    Fit(
        "EXP2",
        lambda r: mp.mpf(2) ** r,
        tuple(range(7)),
        -0.5,
        0.5,
        lambda r: mp.mpf(2) ** -r,
        24,
        "2**r for |r| <= 1/2",
        {0: mp.mpf(1)},
    ),
    Fit(
        "EXP",
        mp.exp,
        tuple(range(7)),
        -LN2_HALF,
        LN2_HALF,
        lambda r: mp.exp(-r),
        24,
        "exp(r) for |r| <= ln(2)/2",
        {0: mp.mpf(1)},
    ),
    Fit(
        "EXPM1",
        lambda r: (mp.expm1(r) - r) / r**2,
        tuple(range(6)),
        -LN2_HALF,
        LN2_HALF,
        lambda r: r**2 / mp.expm1(r),
        24,
        "(expm1(r) - r) / r**2 for |r| <= ln(2)/2",
    ),
    Fit(
        "LOG",
        _log_tail,
        tuple(range(10)),
        *OCTAVE,
        lambda f: f**2 / mp.log1p(f),
        24,
        "(log1p(f) - f) / f**2 for 1 + f within sqrt(2)**+-1",
    ),
    Fit(
        "LOG2",
        lambda f: LOG2_E * _log_tail(f),
        tuple(range(10)),
        *OCTAVE,
        lambda f: f**2 / mp.log1p(f) / LOG2_E,
        24,
        "(log1p(f) - f) / f**2 / ln(2) for 1 + f within sqrt(2)**+-1",
    ),
    Fit(
        "LOG10",
        lambda f: LOG10_E * _log_tail(f),
        tuple(range(10)),
        *OCTAVE,
        lambda f: f**2 / mp.log1p(f) / LOG10_E,
        24,
        "(log1p(f) - f) / f**2 / ln(10) for 1 + f within sqrt(2)**+-1",
    ),
    Fit(
        "SIN",
        _root_free(lambda r: (mp.sin(r) - r) / r**3),
        (0, 1, 2),
        TINY,
        QUARTER,
        _root_free(lambda r: r**3 / mp.sin(r)),
        24,
        "(sin(r) - r) / r**3 in r**2, for |r| <= pi/4",
    ),
    Fit(
        "COS",
        _root_free(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4),
        (0, 1, 2),
        TINY,
        QUARTER,
        _root_free(lambda r: r**4 / mp.cos(r)),
        24,
        "(cos(r) - 1 + r**2/2) / r**4 in r**2, for |r| <= pi/4",
    ),
    Fit(
        "SIN_HALF_TURN",
        _root_free(lambda f: mp.sin(mp.pi * f) / f),
        tuple(range(6)),
        TINY,
        mp.mpf("0.25001"),
        _root_free(lambda f: f / mp.sin(mp.pi * f)),
        53,
        "sin(pi*f) / f in f**2, for |f| <= 1/2, to float32 accuracy",
    ),
    Fit(
        "SIN_QUADRANT",
        _root_free(lambda f: mp.sin(mp.pi / 2 * f) / f),
        tuple(range(5)),
        TINY,
        mp.mpf("0.25001"),
        _root_free(lambda f: f / mp.sin(mp.pi / 2 * f)),
        53,
        "sin(pi/2*f) / f in f**2, for |f| <= 1/2, to float32 accuracy",
    ),
    Fit(
        "COS_QUADRANT",
        _root_free(lambda f: mp.cos(mp.pi / 2 * f)),
        tuple(range(6)),
        TINY,
        mp.mpf("0.25001"),
        _root_free(lambda f: 1 / mp.cos(mp.pi / 2 * f)),
        53,
        "cos(pi/2*f) in f**2, for |f| <= 1/2, to float32 accuracy",
        {0: mp.mpf(1)},
    ),
    Fit(
        "ATAN",
        _root_free(lambda t: (mp.atan(t) - t) / t**3),
        tuple(range(9)),
        TINY,
        1,
        _root_free(lambda t: t**3 / mp.atan(t)),
        24,
        "(atan(t) - t) / t**3 in t**2, |t| <= 1",
    ),
    Fit(
        "ASIN",
        _root_free(lambda t: (mp.asin(t) - t) / t**3),
        tuple(range(5)),
        TINY,
        0.25,
        _root_free(lambda t: t**3 / mp.asin(t)),
        24,
        "(asin(t) - t) / t**3 in t**2, |t| <= 1/2",
    ),
    Fit(
        "SINH",
        _root_free(lambda t: (mp.sinh(t) - t) / t**3),
        tuple(range(4)),
        TINY,
        1,
        _root_free(lambda t: t**3 / mp.sinh(t)),
        24,
        "(sinh(t) - t) / t**3 in t**2, |t| <= 1",
    ),
    Fit(
        "TANH",
        _root_free(lambda t: (mp.tanh(t) - t) / t**3),
        tuple(range(4)),
        TINY,
        0.3035,
        _root_free(lambda t: t**3 / mp.tanh(t)),
        24,
        "(tanh(t) - t) / t**3 in t**2, |t| <= 0.55",
    ),
    Fit(
        "ERF",
        _root_free(lambda t: (mp.erf(t) - 2 / mp.sqrt(mp.pi) * t) / t**3),
        tuple(range(5)),
        TINY,
        0.84,
        _root_free(lambda t: t**3 / mp.erf(t)),
        24,
        "(erf(t) - 2/sqrt(pi)*t) / t**3 in t**2, |t| <= 0.9",
    ),
    Fit(
        "LOG2_ERFC",
        lambda t: mp.log(mp.erfc(t), 2),
        tuple(range(7)),
        0.89,
        3.94,
        lambda t: mp.erfc(t) / mp.erf(t) * mp.log(2),
        24,
        "log2(erfc(t)) for t in [0.9, 3.93]; error relative to erf(t)",
    ),
    Fit(
        "LOG2_WIDE",
        lambda f: mp.log1p(f) / f * LOG2_E,
        tuple(range(14)),
        *OCTAVE,
        lambda f: f / mp.log1p(f) / LOG2_E,
        53,
        "log2(1 + f) / f for 1 + f within sqrt(2)**+-1, beyond float32 accuracy",
    ),
    Fit(
        "EXP2_WIDE",
        lambda r: mp.mpf(2) ** r,
        tuple(range(8)),
        -0.5,
        0.5,
        lambda r: mp.mpf(2) ** -r,
        53,
        "2**r for |r| <= 1/2, beyond float32 accuracy",
        {0: mp.mpf(1)},
    ),
]


# Constants as unevaluated sums of words: value and the bits of each word.
WORDS: dict[str, tuple[mp.mpf, tuple[int, ...]]] = {
    "LN2_WORDS": (mp.log(2), (16, 24)),
    "LN2_ROUNDED": (mp.log(2), (24,)),
    "LOG2_E_WORDS": (LOG2_E, (24, 24)),
    "LOG10_E_WORDS": (LOG10_E, (24, 24)),
    "LOG10_2_WORDS": (mp.log(2, 10), (24, 24)),
    "HALF_PI_WORDS": (mp.pi / 2, (24, 24, 24)),
    "PI_WORDS": (mp.pi, (24, 24)),
}
# Inputs at and above 2**SWITCH[i] are divided by 2**SHIFT[i]; see trigonometric.py.
SWITCH = (44, 65, 86, 107)
SHIFT = (0, 21, 42, 63, 84)


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
            # Unshifted inputs include -0, whose sign would be lost if the second word were negative.
            high, low = words_of(value, (53, 53)) if shift else words_from_below(value, 53)
        rows.append(f"    ({float(high)!r}, {float(low)!r}),\n")
    return "".join(rows)


def constants_text() -> str:
    """Return the lines of coefficients.py that are no polynomials."""
    lines = []
    for name, (value, widths) in WORDS.items():
        words = ", ".join(repr(float(w)) for w in words_of(value, widths))
        lines.append(f"{name} = ({words},)\n")
    high, low = words_from_below(2 / mp.sqrt(mp.pi), 24)
    lines.append(f"ERF_SLOPE = ({float(high)!r}, {float(low)!r})\n")
    with mp.workdps(120):
        inverse = 1 / +mp.pi
        lines.append(f"REDUCE_SWITCH = {SWITCH!r}\nREDUCE_SHIFT = {SHIFT!r}\n")
        lines.append(f"HALF_TURNS = (\n{periodic_words(inverse, 2)})\n")
        lines.append(f"QUADRANTS = (\n{periodic_words(2 * inverse, 4)})\n")
    return "".join(lines)


def table_text(fit: Fit, coefficients: list[mp.mpf], worst: mp.mpf) -> str:
    """Return the lines of coefficients.py for one fit."""
    values = "".join(f"    {float(c)!r},\n" for c in coefficients)
    error = f"relative error at most 2**{float(mp.log(worst, 2)):.1f}"
    return f"# {fit.note};\n# {error}.\n{fit.name} = (\n{values})\n"


HEADER = '''"""Minimax coefficients, lowest power first; written by scripts/derive_polynomials.py.

Tables for float32 hold values that float32 represents exactly.
"""

'''


def main() -> None:
    """Derive the tables asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    texts = []
    for fit in FITS:
        if not arguments.names or fit.name in arguments.names:
            texts.append(table_text(fit, *derive(fit)))
            print(texts[-1], flush=True)
    if arguments.write and not arguments.names:
        OUTPUT.write_text(HEADER + constants_text() + "\n" + "\n".join(texts))


if __name__ == "__main__":
    main()
