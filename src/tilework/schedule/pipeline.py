"""The steps from a function over PARAMs to its schedule, in order; read as a table of contents.

0. `shard.lower`: values over several devices become parts, and copies between the devices.
   `integer_sums`: sums of dequantised products are done in integers.
   `regroup`: folds of large products are read from results that are there already.
   `narrow`: parts of a value that are rounded become parts of the rounded value.
   `exact`: what a rounding holds exactly is read from there.
   `choice`: sums of rows that are zero but for one element are that element.
   `split_reduce`, `split_scan`: long reductions and scans of few rows in steps; `sort_rows`: sorts
   along the last axis; `split_scatter`: long scatters of integers by parts.
1. `prepare.Layout`: which nodes are which version of which buffer; what must be stored.
2. `rangeify.Rangeify`: indices flow from results to sources (`steps`); `decide` says what is
   stored, by the `cost` of computing it again; `operands`: rounded factors are.
3. `order.Ordering`: hazards separated, edges between kernels, circles broken.
4. `layouts.choose_layouts`: the order in which each intermediate is stored;
   `pitch`: how far apart its rows are.
5. `group.group_kernels`: small independent kernels joined, everything put in order.
6. `kernels.KernelBody`: the canonical form of each kernel.
7. `memory_plan.plan_memory`: where intermediates live.
8. `linear.assemble`: LINEAR of CALLs over slots, and the report.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tilework.base import settings, trace
from tilework.base.collection import no_collection
from tilework.base.errors import UserError
from tilework.ir.node import in_use
from tilework.ir.ops.memory import SINK
from tilework.schedule import cache
from tilework.schedule.check import check_function, check_schedule
from tilework.schedule.linear import assemble
from tilework.schedule.passes.choice import sum_choices
from tilework.schedule.passes.exact import read_roundings
from tilework.schedule.passes.group import group_kernels
from tilework.schedule.passes.integer_sums import sum_integers
from tilework.schedule.passes.layouts import choose_layouts
from tilework.schedule.passes.narrow import round_before_turning, round_sources
from tilework.schedule.passes.order import Ordering
from tilework.schedule.passes.pitch import pitch_rows
from tilework.schedule.passes.prepare import Layout
from tilework.schedule.passes.rangeify import Rangeify
from tilework.schedule.passes.regroup import read_results
from tilework.schedule.passes.sort_rows import sort_last_axis
from tilework.schedule.passes.split_reduce import split_reductions
from tilework.schedule.passes.split_scan import split_scans
from tilework.schedule.passes.split_scatter import split_scatters
from tilework.schedule.schedule import DEFAULT_LIMITS, Limits, Schedule
from tilework.schedule.shard.lower import lower_shards, num_inputs

if TYPE_CHECKING:
    from tilework.ir.node import Node


def create_schedule(function: Node, limits: Limits = DEFAULT_LIMITS) -> Schedule:
    """Cut a function into kernels, order them and plan their memory.

    Args:
        function: SINK of outputs over PARAMs, as `transform_to_call` gives it.
        limits: where kernels are cut.

    Returns:
        The schedule, from memory or from disk if this function was scheduled before.

    Raises:
        ScheduleCycleError: writes that cannot be put in order.
        UserError: operands on different devices.
        VerifyError: the function, or what was made of it, is not legal.

    Example:
        >>> from tilework.dtypes import float32
        >>> from tilework.ir.ops import math, memory
        >>> x = memory.PARAM(attrs=memory.ParamAttrs(0, (4,), float32, "CPU"))
        >>> schedule = create_schedule(memory.SINK(math.ADD(x, x)))
        >>> len(schedule.linear.src), schedule.outputs
        (1, (1,))
    """
    if function.op is not SINK:
        raise UserError("schedule: needs a SINK of outputs", got=repr(function))
    found = cache.lookup(function, limits)
    if found is None:
        is_checked = settings.current().verify != "off"
        if is_checked:
            check_function(function)
        found = build_schedule(function, limits)
        if is_checked:
            check_schedule(found)
        cache.remember(function, limits, found)
    return found


def build_schedule(function: Node, limits: Limits = DEFAULT_LIMITS) -> Schedule:
    """`create_schedule` without its caches."""
    with in_use(), no_collection():
        clock = _Clock(function)
        lowered, inputs = lower_shards(function, limits), 0
        if lowered is not function:
            inputs = num_inputs(function)
            function = lowered
            clock.ended("shards", function)
        function = sum_integers(function)
        clock.ended("integer-sums", function)
        function = read_results(function, limits)
        clock.ended("regroup", function)
        function = round_before_turning(function, limits.matrix_units_on)
        function = read_roundings(round_sources(function), limits.matrix_units_on)
        clock.ended("narrow", function)
        function = sum_choices(function, limits)
        clock.ended("choices", function)
        function = split_reductions(function)
        clock.ended("split-reductions", function)
        function = sort_last_axis(split_scans(function, limits.scans_whole_on))
        clock.ended("split-scans", function)
        function = split_scatters(function, limits.scatters_split_on)
        clock.ended("split-scatters", function)
        layout = Layout(function, inputs, limits.scatters_chosen_on)
        clock.ended("prepare", layout)
        rangeify = Rangeify(layout, limits)
        clock.ended("rangeify", rangeify.kernels)
        ordering = Ordering(layout, rangeify.kernels)
        clock.ended("order", ordering)
        choose_layouts(ordering.kernels, rangeify.costs.contractions, limits)
        pitch_rows(ordering.kernels, rangeify.costs.contractions, limits)
        clock.ended("layouts", ordering)
        groups = group_kernels(ordering.kernels, ordering.after, limits)
        clock.ended("group", groups)
        schedule = assemble(layout, groups)
        clock.ended("assemble", schedule)
    return schedule


class _Clock:
    """Tells subscribers what each step gave and how long it took."""

    def __init__(self, before: object) -> None:
        self.before = before
        self.since = time.perf_counter()

    def ended(self, name: str, after: object) -> None:
        now = time.perf_counter()
        if trace.enabled():
            event = trace.PassEnded(f"schedule.{name}", self.before, after, now - self.since)
            trace.emit(event)
        self.before = after
        self.since = time.perf_counter()
