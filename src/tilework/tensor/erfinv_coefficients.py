"""Polynomials of erfinv in float32, derived by scripts/derive_erfinv.py."""

from __future__ import annotations

#: erfinv(x) / x for w = -log(1 - x * x) up to the limit, and beyond: where w is the middle (in two
#: parts), and coefficients of what is added for each step from there.
LIMIT = 5.0
NEAR_MIDDLE = 1.5
NEAR_VALUE = (1.2520638704299927, -2.98465501202827e-08)
NEAR = (
    0.25036242604255676,
    0.000879773055203259,
    -0.0020922268740832806,
    0.00017764090443961322,
    2.319560371688567e-05,
    -5.337910806701984e-06,
    -3.634324485801699e-08,
    1.0250037973946746e-07,
    -8.810396856517855e-09,
)
FAR_MIDDLE = 9.0
FAR_VALUE = (2.832976818084717, -1.9356445335461103e-08)
FAR = (
    0.16694588959217072,
    -0.00437500374391675,
    0.00020766098168678582,
    -9.545967259327881e-06,
    1.2405882898747222e-07,
    5.4876316823992966e-08,
    -1.0007926931621114e-08,
    1.080706857337077e-09,
    -7.166653381851518e-11,
    2.2013231081724483e-12,
    -3.0280779884136588e-15,
)
