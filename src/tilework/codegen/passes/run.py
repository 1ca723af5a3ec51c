"""Runs the passes over one kernel: each is timed, reported, and its result verified."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tilework.base import settings, trace
from tilework.ir.stage import Stage
from tilework.ir.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilework.ir.node import Node


class PassRun:
    """The passes of one kernel, run one after the other.

    Args:
        stages: The stage in which each pass leaves a kernel, by the pass's name.
        kernel: The kernel as it came.
        stage: The stage that it is in.
    """

    def __init__(self, stages: Mapping[str, Stage], kernel: Node, stage: Stage) -> None:
        self._stages = stages
        self._mode = settings.current().verify
        self._stage = stage
        if self._mode != "off":
            verify(kernel, stage, after="scheduling")

    def run(self, name: str, before: Node, function: Callable[[Node], Node]) -> Node:
        """Run one pass and return what it made of `before`.

        With `verify="stage"` the result is checked where it enters another stage (LINEAR is left to
        the renderers, which always check), with "pass" always.

        Raises:
            VerifyError: The pass made something that is not legal in its stage.
        """
        start = time.perf_counter()
        after = function(before)
        seconds = time.perf_counter() - start
        stage = self._stages[name]
        is_border = stage is not self._stage and stage is not Stage.LINEAR
        self._stage = stage
        if self._mode == "pass" or (self._mode == "stage" and is_border):
            verify(after, stage, after=name)
        if trace.enabled():
            trace.emit(trace.PassEnded(f"codegen.{name}", before, after, seconds))
        return after
