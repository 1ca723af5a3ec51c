"""Named sets of rewrite rules.

`SIMPLIFY` is right at any stage and cheap: literals, identities, bounds, conditions, casts.  It
keeps index arithmetic in its normal form.  `SIMPLIFY_TENSORS` adds the movement ops.  `STRENGTH`
and `DIVISION` replace multiplications and divisions by literals and belong at the end, when
addresses are final.  `CONTRACT` and `REASSOCIATE` round otherwise than written, where the setting
`fp_mode` allows that.  `SATURATED_QUOTIENTS`
and `QUOTIENTS` are for targets with an FMA, and change no bit.
"""

from __future__ import annotations

from tilework.ir.pattern import joined
from tilework.ir.rules.algebra import ALGEBRA
from tilework.ir.rules.boolean import BOOLEAN
from tilework.ir.rules.casts import CASTS
from tilework.ir.rules.division import DIVISION
from tilework.ir.rules.folding import FOLDING
from tilework.ir.rules.integer import INTEGER, STRENGTH
from tilework.ir.rules.loose import CONTRACT, REASSOCIATE
from tilework.ir.rules.movement import MOVEMENT
from tilework.ir.rules.quotients import QUOTIENTS, SATURATED_QUOTIENTS

SIMPLIFY = joined("simplify", FOLDING, ALGEBRA, INTEGER, BOOLEAN, CASTS)
SIMPLIFY_TENSORS = joined("simplify-tensors", FOLDING, ALGEBRA, INTEGER, BOOLEAN, CASTS, MOVEMENT)

__all__ = [
    "ALGEBRA",
    "BOOLEAN",
    "CASTS",
    "CONTRACT",
    "DIVISION",
    "FOLDING",
    "INTEGER",
    "MOVEMENT",
    "QUOTIENTS",
    "REASSOCIATE",
    "SATURATED_QUOTIENTS",
    "SIMPLIFY",
    "SIMPLIFY_TENSORS",
    "STRENGTH",
]
