"""Small kernels, and schedules that run them one after another, made without the scheduler."""

from tilework.dtypes import float32
from tilework.ir.build import const, const_index
from tilework.ir.node import Node
from tilework.ir.ops.index import RANGE, VARIABLE, RangeAttrs, VariableAttrs
from tilework.ir.ops.math import MUL
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.program import CALL, LINEAR
from tilework.schedule.schedule import Schedule, Slot, SlotKind


def variable(name: str = "n", minimum: int = 1, maximum: int = 64) -> Node:
    """A symbolic size."""
    return VARIABLE(attrs=VariableAttrs(name, minimum, maximum))


def param(slot: int, size: int | Node, device: str = "") -> Node:
    """Argument `slot`: so many float32."""
    return PARAM(attrs=ParamAttrs(slot, (size,), float32, device))


def scale_kernel(size: int | Node, factor: float = 2.0) -> Node:
    """out[i] = in[i] * factor; PARAM 0 is out, PARAM 1 in."""
    i = RANGE(const_index(size) if isinstance(size, int) else size, attrs=RangeAttrs(0))
    loaded = LOAD(INDEX(param(1, size), i))
    return SINK(STORE(INDEX(param(0, size), i), MUL(loaded, const(factor, float32))))


def chain(device: str, size: int | Node, factors: list[float], limit: int = 64) -> Schedule:
    """in -> scaled by each factor in turn -> out; what lies between is in one arena each."""
    greatest = size if isinstance(size, int) else limit
    count = len(factors)
    slots = [Slot(SlotKind.INPUT, greatest * 4, (size,), float32, device)]
    slots += [Slot(SlotKind.OUTPUT, greatest * 4, (size,), float32, device)]
    slots += [Slot(SlotKind.ARENA, greatest * 4, (size,), float32, device)] * (count - 1)
    places = [0, *range(2, count + 1), 1]
    calls = [
        CALL(scale_kernel(size, factor), param(places[k + 1], size), param(places[k], size))
        for k, factor in enumerate(factors)
    ]
    return Schedule(LINEAR(*calls), tuple(slots), (1,), ())
