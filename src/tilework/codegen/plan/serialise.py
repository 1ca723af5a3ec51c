"""Tile plans as plain JSON values and back, for databases of tuned plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import PlanError
from tilework.codegen.gpu.plan import GpuPlan
from tilework.codegen.plan.kinds import AnyPlan, CascadePlan, SortPlan
from tilework.codegen.plan.plan import Part, Plan, Split, Staged
from tilework.ir.ops.index import Unit
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

#: Raised by one when the meaning of a field changes; older plans are refused.
FORMAT: Final = 4


def plan_to_json(plan: AnyPlan) -> dict[str, Any]:
    """A plan as nested dictionaries, lists, strings and numbers."""
    if isinstance(plan, CascadePlan):
        phases = [[number, plan_to_json(phase)] for number, phase in plan.phases]
        cut = {"rows": plan.rows, "block": plan.block, "batch": plan.batch}
        return {"format": FORMAT, "kind": "cascade", **cut, "phases": phases}
    if isinstance(plan, SortPlan):
        return {"format": FORMAT, "kind": "sort", "digit": plan.digit}
    if isinstance(plan, GpuPlan):
        words = {"block": plan.block, "depth": plan.depth, "resident": plan.resident}
        sides = {"rows": _parts_to_json(plan.rows), "columns": _parts_to_json(plan.columns)}
        return {**_loops_to_json(plan), "kind": "blocks", **words, **sides}
    return _loops_to_json(plan)


def _loops_to_json(plan: Plan) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "splits": [
            {
                "number": split.number,
                "outer": _parts_to_json(split.outer),
                "tile": _parts_to_json(split.tile),
            }
            for split in plan.splits
        ],
        "nest": [list(entry) for entry in plan.nest],
        "tasks": plan.tasks,
        "staged": [
            {
                "operand": staged.operand,
                "memory": staged.memory.value,
                "level": staged.level,
                "lanes": staged.lanes,
                "depth": staged.depth,
                "windows": staged.windows,
            }
            for staged in plan.staged
        ],
        "overlap": plan.overlap,
        "swapped": plan.swapped,
        "matrix": plan.matrix,
        "ahead": plan.ahead,
        "rolled": plan.rolled,
    }


def _parts_to_json(parts: tuple[Part, ...]) -> list[list[Any]]:
    return [[part.unit.value, part.size] for part in parts]


def plan_from_json(data: Any) -> AnyPlan:
    """The plan that `plan_to_json` wrote.

    Raises:
        PlanError: The data has another form or another format number.
    """
    try:
        if data["format"] != FORMAT:
            raise PlanError("plan: another format", got=repr(data["format"]), expected=str(FORMAT))
        kind = data.get("kind", "")
        if kind == "cascade":
            return _cascade(data)
        if kind == "sort":
            return SortPlan(_integer(data["digit"]))
        return _blocks(data) if kind == "blocks" else _loops(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError("plan: the data is no plan", got=f"{data!r:.200}") from error


def _loops(data: Any) -> Plan:
    return Plan(
        tuple([_split(entry) for entry in data["splits"]]),
        tuple([(_integer(number), _integer(part)) for number, part in data["nest"]]),
        _integer(data["tasks"]),
        tuple([_staged(entry) for entry in data["staged"]]),
        _flag(data["overlap"]),
        _flag(data["swapped"]),
        _text(data["matrix"]),
        _integer(data["ahead"]),
        _flag(data["rolled"]),
    )


def _blocks(data: Any) -> GpuPlan:
    loops = _loops(data)
    block, depth, resident = (_integer(data[name]) for name in ("block", "depth", "resident"))
    return GpuPlan(
        loops.splits,
        loops.nest,
        loops.tasks,
        loops.staged,
        loops.overlap,
        loops.swapped,
        loops.matrix,
        loops.ahead,
        loops.rolled,
        block,
        _parts(data["rows"]),
        _parts(data["columns"]),
        depth,
        resident,
    )


def _cascade(data: Any) -> CascadePlan:
    rows, block, batch = (_integer(data[name]) for name in ("rows", "block", "batch"))
    phases = tuple([(_integer(number), _loops(phase)) for number, phase in data["phases"]])
    return CascadePlan(rows, block, batch, phases)


def _split(data: Any) -> Split:
    return Split(_integer(data["number"]), _parts(data["outer"]), _parts(data["tile"]))


def _parts(data: Any) -> tuple[Part, ...]:
    return tuple([Part(_named(Unit, unit), _integer(size)) for unit, size in data])


def _staged(data: Any) -> Staged:
    return Staged(
        _integer(data["operand"]),
        _named(Memory, data["memory"]),
        _integer(data["level"]),
        _integer(data["lanes"]),
        _integer(data["depth"]),
        _flag(data["windows"]),
    )


def _named(kind: Callable[[str], Any], name: Any) -> Any:
    if not isinstance(name, str):
        raise TypeError(name)
    return kind(name)


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(value)
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(value)
    return value
