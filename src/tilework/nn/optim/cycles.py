"""Schedules of rates that go up and down, and of momenta that go the other way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tilework.base.errors import UserError
from tilework.nn.optim.groups import FIRST_RATE
from tilework.nn.optim.optimizer import Optimizer
from tilework.nn.optim.schedule import Schedule, check_counts, each_group, straight, waved


class OneCycleLR(Schedule):
    """Up to `max_lr`, down to the first rate and below; momentum goes the other way.

    Args:
        optimizer: whose rates are set.
        max_lr: the greatest rate, or a list with one for each group.
        total_steps: all steps, or else ...
        epochs: ... so many times ...
        steps_per_epoch: ... so many.
        pct_start: the share of them in which the rate grows.
        anneal_strategy: "cos" for half waves of a cosine, "linear" for straight lines.
        cycle_momentum: set the momentum too, or the first of `betas`.
        base_momentum: the least momentum, or a list.
        max_momentum: the greatest momentum, or a list.
        div_factor: the first rate is `max_lr` divided by it.
        final_div_factor: the last rate is the first divided by it.
        three_phase: go down to the first rate as fast as up, and below in what is left.
        last_epoch: steps that were made before, less one.

    Raises:
        UserError: the number of steps is missing, or the shape makes no sense.
    """

    def __init__(  # noqa: PLR0913  # PyTorch's arguments
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise UserError(
                    "OneCycleLR: needs total_steps, or epochs and steps_per_epoch",
                    got=f"{epochs=}, {steps_per_epoch=}",
                )
            total_steps = epochs * steps_per_epoch
        check_counts("OneCycleLR", total_steps=total_steps)
        if not 0 <= pct_start <= 1 or not div_factor > 0 or not final_div_factor > 0:
            raise UserError(
                "OneCycleLR: the shape makes no sense",
                got=f"{pct_start=}, {div_factor=}, {final_div_factor=}",
                expected="a share from 0 to 1 and positive divisors",
            )
        if anneal_strategy not in ("cos", "linear"):
            raise UserError(
                "OneCycleLR: unknown way between rates", got=anneal_strategy, expected="cos, linear"
            )
        between = waved if anneal_strategy == "cos" else straight
        top, end = pct_start * total_steps - 1, total_steps - 1
        ends = [top, 2 * top, end] if three_phase else [top, end]

        def along(step: int, values: Sequence[float]) -> float:
            place = next((at for at, until in enumerate(ends) if step <= until), len(ends) - 1)
            begin, until = ends[place - 1] if place else 0.0, ends[place]
            share = min((step - begin) / (until - begin), 1.0) if until > begin else 1.0
            return between(values[place], values[place + 1], share)

        tops = each_group("OneCycleLR", optimizer, max_lr)
        # A state that goes on starts from the first rates of before.
        for part, most in zip(optimizer.parts, tops, strict=True):
            if last_epoch == -1:
                part.param_groups[0][FIRST_RATE] = most / div_factor

        def make(number: int, _: float) -> Callable[[int], float]:
            first, most = tops[number] / div_factor, tops[number]
            last = first / final_div_factor
            values = [first, most, first, last] if three_phase else [first, most, last]
            return lambda step: along(step, values)

        self._start(optimizer, make, last_epoch)
        if cycle_momentum:
            low = each_group("OneCycleLR", optimizer, base_momentum)
            high = each_group("OneCycleLR", optimizer, max_momentum)
            self._start_momenta(
                [
                    partial(along, values=[b, a, b, b] if three_phase else [b, a, b])
                    for a, b in zip(low, high, strict=True)
                ]
            )


class CyclicLR(Schedule):
    """Up from `base_lr` to `max_lr` and down again, in straight lines, over and over.

    Args:
        optimizer: whose rates are set.
        base_lr: the least rate, or a list with one for each group.
        max_lr: the greatest rate, or a list.
        step_size_up: steps on the way up.
        step_size_down: steps on the way down; as many as up by default.
        mode: "triangular"; "triangular2", in which each turn is half as high; "exp_range", in which
            heights shrink by `gamma` in each step.
        gamma: see `mode`.
        scale_fn: gives the share of the height instead of the mode, ...
        scale_mode: ... for the number of the turn, from 1 ("cycle"), or of the step ("iterations").
        cycle_momentum: set the momentum too, or the first of `betas`, the other way.
        base_momentum: the least momentum, or a list.
        max_momentum: the greatest momentum, or a list.
        last_epoch: steps that were made before, less one.

    Raises:
        UserError: a mode is unknown, or a way has no steps.
    """

    def __init__(  # noqa: PLR0913  # PyTorch's arguments
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise UserError(
                "CyclicLR: unknown mode",
                got=mode,
                expected="triangular, triangular2 or exp_range",
            )
        if scale_mode not in ("cycle", "iterations"):
            raise UserError(
                "CyclicLR: unknown scale_mode", got=scale_mode, expected="cycle or iterations"
            )
        down = step_size_up if step_size_down is None else step_size_down
        check_counts("CyclicLR", step_size_up=step_size_up, step_size_down=down)

        def height(step: int) -> float:
            turn, rest = divmod(step, step_size_up + down)
            share = (
                rest / step_size_up if rest <= step_size_up else 1 - (rest - step_size_up) / down
            )
            if scale_fn is not None:
                return share * scale_fn(turn + 1 if scale_mode == "cycle" else step)
            if mode == "exp_range":
                return float(share * gamma**step)
            return share * (0.5**turn if mode == "triangular2" else 1.0)

        low, high = (each_group("CyclicLR", optimizer, each) for each in (base_lr, max_lr))
        for part, least in zip(optimizer.parts, low, strict=True):
            if last_epoch == -1:
                part.param_groups[0][FIRST_RATE] = least
        self._start(
            optimizer,
            lambda number, _: (
                lambda step: low[number] + (high[number] - low[number]) * height(step)
            ),
            last_epoch,
        )
        if cycle_momentum:
            least = each_group("CyclicLR", optimizer, base_momentum)
            greatest = each_group("CyclicLR", optimizer, max_momentum)
            self._start_momenta(
                [
                    partial(_below, height, greatest=b, depth=b - a)
                    for a, b in zip(least, greatest, strict=True)
                ]
            )


def _below(height: Callable[[int], float], step: int, *, greatest: float, depth: float) -> float:
    """A momentum that is least where the rate is greatest."""
    return greatest - depth * height(step)
