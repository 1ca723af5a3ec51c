"""The scheduler's limits for the devices that are open.

Cascades and products that are computed again run in one kernel where matrix instructions keep all
that is between in registers.  Cards without those, or without them for one of the dtypes of 16
bits, would compute such a kernel element by element: there each product is a kernel of its own, and
what is between is stored.

Matrix registers of a processor multiply what lies in memory.  Where it has them for bfloat16, two
products and what is between, each by itself, take less time than one kernel by vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base import settings
from tilework.base.records import replace
from tilework.engine.device import Device
from tilework.engine.folds import collectives_of
from tilework.runtime.links import shared
from tilework.schedule.schedule import DEFAULT_LIMITS

if TYPE_CHECKING:
    from tilework.schedule.schedule import Limits
    from tilework.target.spec import TargetSpec

#: The units whose products take factors held in registers, and the dtypes that they must know.
_UNITS: Final = ("warp_group", "warp")
_NARROW: Final = frozenset({"float16", "bfloat16"})
_Specs = list[tuple[str, "TargetSpec"]]
#: By kind of devices, what a library folds between several.
_Libraries = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
#: Limits by the kinds that lack it, by libraries, and by the kinds that have matrix registers.
_made_before: Final[dict[tuple[frozenset[str], _Libraries, tuple[str, ...]], Limits]] = {}
#: The dtype of which processors have products in matrix registers, and the most bytes of scores
#: that are stored for them.
_IN_REGISTERS: Final = "bfloat16"
_MOST_SCORES: Final = 64 << 20


class _Last:
    """What the devices are that were asked for last, and what was found: one object for both."""

    row: tuple[_Specs, bool, frozenset[str], tuple[str, ...]] | None = None


def limits_of_devices() -> Limits:
    """The limits for what is scheduled now, the same object for the same devices."""
    specs = Device.specs()
    lacking, registers = _units_of(specs)
    libraries = _libraries(specs)
    if not lacking and not libraries and not registers:
        return DEFAULT_LIMITS
    key = (lacking, libraries, registers)
    found = _made_before.get(key)
    if found is None:
        found = _made_before[key] = replace(
            DEFAULT_LIMITS,
            collectives_on=libraries,
            scores_stored_on=tuple([(kind, _IN_REGISTERS, _MOST_SCORES) for kind in registers]),
            matrix_units_on=tuple(
                [kind for kind in DEFAULT_LIMITS.matrix_units_on if kind not in lacking]
            ),
            recomputed_from=tuple(
                [row for row in DEFAULT_LIMITS.recomputed_from if row[0] not in lacking]
            ),
        )
    return found


def _units_of(specs: _Specs) -> tuple[frozenset[str], tuple[str, ...]]:
    """The kinds of devices that lack matrix units, and those that have matrix registers.

    Each realization asks, and hardly ever of other devices than the one before.
    """
    keeps = settings.current().keep_subnormals
    last = _Last.row
    if last is None or last[1] != keeps or last[0] != specs:
        kinds = DEFAULT_LIMITS.matrix_units_on
        lacking = frozenset(kind for kind, spec in specs if kind in kinds and not _has_unit(spec))
        last = _Last.row = (specs, keeps, lacking, _with_registers(specs, keeps))
    return last[2], last[3]


def _with_registers(specs: _Specs, keeps: bool) -> tuple[str, ...]:
    """The kinds of devices all of which have matrix registers for bfloat16, and may use them."""
    has: dict[str, bool] = {}
    for kind, spec in specs:
        own = any(
            each.registers
            and each.a_dtype == _IN_REGISTERS
            and (each.keeps_subnormals or not keeps)
            for each in spec.matrix_instructions
        )
        has[kind] = has.get(kind, True) and own
    return tuple([kind for kind in sorted(has) if has[kind]])


def _libraries(specs: _Specs) -> _Libraries:
    """By kind of which several devices are open, what a library folds between all of them.

    So it is with the devices of a group of processes, which have agreed on it.
    """
    kinds: dict[str, list[str]] = {}
    # A list, since a generator would take a call for each device of each realization.
    is_linked = any([kind in DEFAULT_LIMITS.linked_on for kind, _ in specs])  # noqa: C419
    for name in Device.opened() if is_linked else ():
        kind = name.partition(":")[0]  # a card of a group of processes is of a kind of its own
        if kind in DEFAULT_LIMITS.linked_on:
            kinds.setdefault(kind, []).append(name)
    found = []
    for kind, names in sorted(kinds.items()):
        rows = [collectives_of(Device[name]) for name in names] if len(names) > 1 else []
        common = frozenset.intersection(*rows) if rows else frozenset()
        if common:
            found.append((kind, tuple(sorted(common))))
    if shared().folds:
        found.append((shared().kind, shared().folds))
    return tuple(found)


def _has_unit(spec: TargetSpec) -> bool:
    known = {each.a_dtype for each in spec.matrix_instructions if each.unit in _UNITS}
    return known >= _NARROW
