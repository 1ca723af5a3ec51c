"""Derive the Chebyshev series of src/tilework/tensor/special_coefficients.py and print that file.

Usage: `python scripts/derive_chebyshev.py > src/tilework/tensor/special_coefficients.py`.
Each function is sampled in multi-precision at the zeros of a Chebyshev polynomial; coefficients
below the rounding of float64 are left out.
"""

from collections.abc import Callable

import mpmath as mp

mp.mp.dps = 40
COUNT = 60
NEGLIGIBLE = 2e-17


def series(function: Callable[[mp.mpf], mp.mpf]) -> list[float]:
    """Return the coefficients of `function` on [-1, 1]."""
    points = 3 * COUNT
    places = [mp.cos(mp.pi * (k + mp.mpf(1) / 2) / points) for k in range(points)]
    values = [function(place) for place in places]
    found = []
    for number in range(COUNT):
        waves = [mp.cos(mp.pi * number * (k + mp.mpf(1) / 2) / points) for k in range(points)]
        total = mp.fsum(value * wave for value, wave in zip(values, waves, strict=True))
        found.append(float(2 * total / points))
    found[0] /= 2
    top = max(abs(value) for value in found)
    while abs(found[-1]) < NEGLIGIBLE * top:
        found.pop()
    return found


def scaled_complement(y: mp.mpf) -> mp.mpf:
    """Return log(exp(z * z) * erfc(z) / t) at t = 2 / (2 + z) = (y + 1) / 2."""
    t = max((y + 1) / 2, mp.mpf(10) ** -30)
    z = 2 / t - 2
    if z < 50:
        value = mp.erfc(z) * mp.exp(z * z)
    else:
        square = 2 * z * z
        terms = [mp.fac2(2 * k - 1) / (-square) ** k if k else mp.mpf(1) for k in range(8)]
        value = mp.fsum(terms) / (z * mp.sqrt(mp.pi))
    return mp.log(value / t)


def near(order: int) -> Callable[[mp.mpf], mp.mpf]:
    """Return exp(-x) I(x) (over x for order 1) at x = 4 * (y + 1)."""

    def value(y: mp.mpf) -> mp.mpf:
        x = 4 * (y + 1)
        if x == 0:
            return mp.mpf(1) / (1 + order)
        found = mp.exp(-x) * mp.besseli(order, x)
        return found / x if order else found

    return value


def far(order: int) -> Callable[[mp.mpf], mp.mpf]:
    """Return sqrt(x) exp(-x) I(x) at x = 16 / (y + 1)."""

    def value(y: mp.mpf) -> mp.mpf:
        x = 16 / (y + 1)
        return mp.exp(-x) * mp.besseli(order, x) * mp.sqrt(x)

    return value


def main() -> None:
    """Print the module."""
    print('"""Chebyshev coefficients on [-1, 1], made by scripts/derive_chebyshev.py."""\n')
    print("from __future__ import annotations")
    tables: dict[str, Callable[[mp.mpf], mp.mpf]] = {"ERFCX": scaled_complement}
    for order in (0, 1):
        tables[f"I{order}_NEAR"] = near(order)
        tables[f"I{order}_FAR"] = far(order)
    for name, function in tables.items():
        print(f"\n{name} = (")
        for value in series(function):
            print(f"    {value!r},")
        print(")")


if __name__ == "__main__":
    main()
