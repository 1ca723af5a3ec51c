"""The steps from a value over several devices to a part of it that is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.node import make
from tilework.schedule.shard import spec
from tilework.schedule.shard.movement import MOVES, forward_all

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.ir.ops.multi import Layout
    from tilework.ir.types import Shape


def views_between(view: Node, base: Node, layout: Layout) -> list[tuple[Node, Layout]] | None:
    """The steps from a written value to the view that is written, each with its layout.

    None where a step would have to move elements between devices.
    """
    found = []
    for step in _steps(view, base):
        if step.op in MOVES:
            moved = forward_all(step, layout)
            if moved is None:
                return None
            layout = moved
        found.append((step, layout))
    return found


def has_elements(view: list[tuple[Node, Layout]], base: Layout, number: int, shape: Shape) -> bool:
    """Whether a device holds an element that is seen through the steps of a view."""
    layout = view[-1][1] if view else base
    return spec.count(spec.numbers(layout.boxes[number], shape)) > 0


def rebased(view: Node, base: Node, new: Node) -> Node:
    """The view of `new` that `view` is of `base`."""
    for step in _steps(view, base):
        new = make(step.op, (new,), step.attrs)
    return new


def _steps(view: Node, base: Node) -> list[Node]:
    """The ops that lead from `base` to a view of it, first to last."""
    chain: list[Node] = []
    while view is not base:
        chain.append(view)
        view = view.src[0]
    return chain[::-1]
