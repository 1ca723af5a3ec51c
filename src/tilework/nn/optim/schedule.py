"""Learning rates that change from step to step; the rate is a tensor, so captures follow it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tilework.base.errors import UserError
from tilework.nn.optim.groups import FIRST_RATE
from tilework.nn.optim.optimizer import Optimizer
from tilework.tensor.tensor import Tensor

#: Of a group's number and first rate: the rate after so many steps.
Maker = Callable[[int, float], Callable[[int], float]]
Factor = Callable[[int], float]


class Schedule:
    """Sets the rate of each group of an optimizer to its first one times `factor(step)`.

    The first rate is the one that the group had before any schedule was made for it.

    Args:
        optimizer: whose rates are set.
        factor: takes the number of `step` calls so far.
        last_epoch: steps that were made before, less one; the groups then say what their rates
            were before these as `initial_lr`.

    Example:
        >>> from tilework.nn.optim import SGD
        >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.5)
        >>> schedule = Schedule(optimizer, lambda step: 0.1**step)
        >>> schedule.step()
        >>> round(optimizer.lr.item(), 4)
        0.05
    """

    def __init__(
        self, optimizer: Optimizer, factor: Callable[[int], float], last_epoch: int = -1
    ) -> None:
        self._start(optimizer, lambda _, base: lambda step: base * factor(step), last_epoch)

    def _start(self, optimizer: Optimizer, make: Maker, last_epoch: int = -1) -> None:
        """Set the first rates; a schedule that names rates, not factors, begins with this.

        Args:
            optimizer: whose rates are set.
            make: gives the rate after so many steps, of a group's number and first rate.
            last_epoch: steps that were made before, less one.

        Raises:
            UserError: steps were made, and a group does not know the rate before them.
        """
        self.optimizer = optimizer
        if last_epoch != -1 and any(FIRST_RATE not in group for group in optimizer.param_groups):
            raise UserError(
                f"{type(self).__name__}: the rate before the first step is not known",
                got=f"{last_epoch=}",
                expected=f"`{FIRST_RATE}` in each of the optimizer's groups",
            )
        self.base_lrs = [part.first_rate() for part in optimizer.parts]
        # What the rate of a group is after so many steps.
        self.rates = [make(number, base) for number, base in enumerate(self.base_lrs)]
        # What the momentum is after so many steps, if the schedule sets it.
        self.momenta: list[Callable[[int], float]] = []
        self.last_epoch = last_epoch + 1
        self._set()

    def _set(self) -> None:
        parts = self.optimizer.parts
        if len(parts) != len(self.rates):
            raise UserError(
                f"{type(self).__name__}: a group was added after the schedule was made",
                got=f"{len(parts)} groups",
                expected=f"{len(self.rates)}",
            )
        for part, rate in zip(parts, self.rates, strict=True):
            part.set_rate(rate(self.last_epoch))
        for part, momentum in zip(parts, self._momenta_at(self.last_epoch), strict=False):
            part.set_momentum(momentum)

    def _momenta_at(self, step: int) -> list[float]:
        """The momenta of the groups after so many steps; none if the schedule leaves them."""
        return [momentum(step) for momentum in self.momenta]

    def _start_momenta(self, momenta: list[Callable[[int], float]]) -> None:
        """Set momenta from now on."""
        self.momenta = momenta
        self._set()

    def step(self) -> None:
        """Go to the next rates."""
        self.last_epoch += 1
        self._set()

    def get_last_lr(self) -> list[float]:
        """The rates of the groups that were set last."""
        return [rate(self.last_epoch) for rate in self.rates]

    def state_dict(self) -> dict[str, Any]:
        """The number of steps as `last_epoch`, the first rates `base_lrs`, and the last rates."""
        return {
            "last_epoch": self.last_epoch,
            "base_lrs": list(self.base_lrs),
            "_last_lr": self.get_last_lr(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave.

        Args:
            state_dict: of a schedule with the same arguments.

        Raises:
            UserError: the rates began elsewhere.
        """
        if list(state_dict["base_lrs"]) != self.base_lrs:
            raise UserError(
                f"{type(self).__name__}: the rates began elsewhere",
                got=state_dict["base_lrs"],
                expected=str(self.base_lrs),
            )
        self.last_epoch = int(state_dict["last_epoch"])
        self._set()


def _each(schedule: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """An argument for each group, whether one is given for all or a list.

    Raises:
        UserError: there are other numbers of groups and of values.
    """
    count = len(optimizer.parts)
    found = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(found) != count:
        raise UserError(
            f"{schedule}: needs a value for each group", got=len(found), expected=f"{count}"
        )
    return found


def _check_counts(schedule: str, **counts: int) -> None:
    """Raises: UserError: a number of steps is below 1."""
    for name, count in counts.items():
        if count < 1:
            raise UserError(
                f"{schedule}: `{name}` is too small", got=count, expected="at least one step"
            )


class StepLR(Schedule):
    """The rate times `gamma` after each `step_size` steps."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        _check_counts("StepLR", step_size=step_size)
        super().__init__(optimizer, lambda step: gamma ** (step // step_size), last_epoch)


class MultiStepLR(Schedule):
    """The rate times `gamma` at each of the `milestones`."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        super().__init__(
            optimizer,
            lambda step: gamma ** sum([step >= stone for stone in milestones]),
            last_epoch,
        )


class ExponentialLR(Schedule):
    """The rate times `gamma` after each step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        super().__init__(optimizer, lambda step: gamma**step, last_epoch)


class LinearLR(Schedule):
    """A warm-up: from `start_factor` to `end_factor` of the rate over `total_iters` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        def factor(step: int) -> float:
            share = min(step / total_iters, 1.0) if total_iters else 1.0
            return start_factor + (end_factor - start_factor) * share

        super().__init__(optimizer, factor, last_epoch)


class PolynomialLR(Schedule):
    """The rate down to 0 over `total_iters` steps, by a power of what is left."""

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        _check_counts("PolynomialLR", total_iters=total_iters)
        super().__init__(
            optimizer, lambda step: (1 - min(step, total_iters) / total_iters) ** power, last_epoch
        )


class CosineAnnealingLR(Schedule):
    """The rate to `eta_min` over `T_max` steps, along half a wave of a cosine, and up again."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        _check_counts("CosineAnnealingLR", T_max=T_max)
        self._start(
            optimizer, lambda _, base: lambda step: _waved(base, eta_min, step / T_max), last_epoch
        )


class CosineWarmupLR(Schedule):
    """A linear warm-up over `warmup` steps, then half a wave of a cosine down to `least`.

    Args:
        optimizer: whose rate is set.
        total: all steps.
        warmup: the first ones, in which the rate grows from 0.
        least: the last rate, as a share of the first.
    """

    def __init__(
        self, optimizer: Optimizer, total: int, warmup: int = 0, least: float = 0.0
    ) -> None:
        def factor(step: int) -> float:
            if step < warmup:
                return (step + 1) / warmup
            share = min((step - warmup) / max(total - warmup, 1), 1.0)
            return least + (1 - least) * (1 + math.cos(math.pi * share)) / 2

        super().__init__(optimizer, factor)


class LambdaLR(Schedule):
    """The first rate times `lr_lambda(step)`, or that of a list, one for each group."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1
    ) -> None:
        factors = _each("LambdaLR", optimizer, lr_lambda)
        self._start(
            optimizer,
            lambda number, base: lambda step: base * factors[number](step),
            last_epoch,
        )


class MultiplicativeLR(Schedule):
    """The rate times `lr_lambda(step)` at each step, or that of a list, one for each group."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1
    ) -> None:
        factors = _each("MultiplicativeLR", optimizer, lr_lambda)

        def make(number: int, base: float) -> Callable[[int], float]:
            rates = [base]

            def rate(step: int) -> float:
                # Kept, so that many steps ask for as many factors, once each.
                while len(rates) <= step:
                    rates.append(rates[-1] * factors[number](len(rates)))
                return rates[step]

            return rate

        self._start(optimizer, make, last_epoch)


class ConstantLR(Schedule):
    """The rate times `factor` for the first `total_iters` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        super().__init__(optimizer, lambda step: factor if step < total_iters else 1.0, last_epoch)


class CosineAnnealingWarmRestarts(Schedule):
    """Half a wave of a cosine down to `eta_min` again and again, each `T_mult` times as long."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        _check_counts("CosineAnnealingWarmRestarts", T_0=T_0, T_mult=T_mult)

        def share(step: int) -> float:
            length, rest = T_0, step
            if T_mult == 1:
                rest %= T_0
            while rest >= length:
                rest -= length
                length *= T_mult
            return rest / length

        self._start(
            optimizer, lambda _, base: lambda step: _waved(base, eta_min, share(step)), last_epoch
        )


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
        _check_counts("OneCycleLR", total_steps=total_steps)
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
        between = _waved if anneal_strategy == "cos" else _straight
        top, end = pct_start * total_steps - 1, total_steps - 1
        ends = [top, 2 * top, end] if three_phase else [top, end]

        def along(step: int, values: Sequence[float]) -> float:
            place = next((at for at, until in enumerate(ends) if step <= until), len(ends) - 1)
            begin, until = ends[place - 1] if place else 0.0, ends[place]
            share = min((step - begin) / (until - begin), 1.0) if until > begin else 1.0
            return between(values[place], values[place + 1], share)

        tops = _each("OneCycleLR", optimizer, max_lr)
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
            low = _each("OneCycleLR", optimizer, base_momentum)
            high = _each("OneCycleLR", optimizer, max_momentum)
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
        _check_counts("CyclicLR", step_size_up=step_size_up, step_size_down=down)

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

        low, high = (_each("CyclicLR", optimizer, each) for each in (base_lr, max_lr))
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
            least = _each("CyclicLR", optimizer, base_momentum)
            greatest = _each("CyclicLR", optimizer, max_momentum)
            self._start_momenta(
                [
                    partial(_below, height, greatest=b, depth=b - a)
                    for a, b in zip(least, greatest, strict=True)
                ]
            )


def _below(height: Callable[[int], float], step: int, *, greatest: float, depth: float) -> float:
    """A momentum that is least where the rate is greatest."""
    return greatest - depth * height(step)


class SequentialLR(Schedule):
    """Schedules of one optimizer one after the other, each from its milestone on.

    Args:
        optimizer: whose rates are set.
        schedulers: schedules that were made for it.
        milestones: at which steps the second, the third, ... begin.
        last_epoch: steps that were made before, less one.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[Schedule],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise UserError(
                "SequentialLR: needs a milestone between schedules",
                got=f"{len(milestones)} for {len(schedulers)} schedules",
                expected=f"{len(schedulers) - 1}",
            )
        self.schedulers = list(schedulers)
        self.starts = [0, *milestones]

        def make(number: int, _: float) -> Callable[[int], float]:
            def rate(step: int) -> float:
                scheduler, since = self._at(step)
                return scheduler.rates[number](since)

            return rate

        self._start(optimizer, make, last_epoch)

    def _at(self, step: int) -> tuple[Schedule, int]:
        """The schedule that a step belongs to, and its number there."""
        place = max(place for place, start in enumerate(self.starts) if start <= step)
        return self.schedulers[place], step - self.starts[place]

    def _momenta_at(self, step: int) -> list[float]:
        scheduler, since = self._at(step)
        return scheduler._momenta_at(since)


class ChainedScheduler(Schedule):
    """Schedules of one optimizer at once: the first rate times the share that each leaves of it.

    Args:
        schedulers: made for the same optimizer, one after the other.
        optimizer: that of the schedules, if it is named at all.

    Raises:
        UserError: there is none, or they belong to several optimizers.
    """

    def __init__(self, schedulers: Sequence[Schedule], optimizer: Optimizer | None = None) -> None:
        found = [s.optimizer for s in schedulers] + ([] if optimizer is None else [optimizer])
        if not schedulers or any(each is not found[0] for each in found):
            raise UserError(
                "ChainedScheduler: needs schedules of one optimizer",
                got=f"{len(schedulers)} of {len({id(each) for each in found})} optimizers",
            )
        self.schedulers = list(schedulers)

        def make(number: int, base: float) -> Callable[[int], float]:
            def rate(step: int) -> float:
                whole = base
                for each in schedulers:
                    first = each.base_lrs[number]
                    whole *= each.rates[number](step) / first if first else 0.0
                return whole

            return rate

        self._start(found[0], make)

    def _momenta_at(self, step: int) -> list[float]:
        found = [each._momenta_at(step) for each in self.schedulers]
        return next((momenta for momenta in reversed(found) if momenta), [])


def _straight(start: float, end: float, share: float) -> float:
    """Between two rates along a line."""
    return start + (end - start) * share


def _waved(start: float, end: float, share: float) -> float:
    """Between two rates along half a wave of a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


class ReduceLROnPlateau:
    """The rate times `factor` when a measure has not become better for more than `patience` steps.

    Args:
        optimizer: whose rate is set.
        mode: "min" or "max": what is better.
        factor: what the rate is multiplied with.
        patience: steps without progress that are tolerated.
        threshold: how much better counts as progress.
        threshold_mode: "rel": as a share of the best measure, or "abs".
        cooldown: steps after a change in which none is counted.
        min_lr: the least rate, or a list with one for each group.
        eps: a smaller change of the rate is not made.

    Raises:
        UserError: a mode is unknown, or the factor does not make rates smaller.
    """

    def __init__(  # noqa: PLR0913  # PyTorch's arguments
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs") or factor >= 1:
            raise UserError(
                "ReduceLROnPlateau: the options make no sense",
                got=f"{mode}, {threshold_mode}, factor {factor}",
                expected="min or max, rel or abs, a factor below 1",
            )
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lrs = _each("ReduceLROnPlateau", optimizer, min_lr)
        self.eps = eps
        self.best = math.inf if mode == "min" else -math.inf
        self.waited = 0
        self.resting = 0

    def step(self, metrics: float | Tensor) -> None:
        """Tell the measure of a step."""
        value = float(metrics.item()) if isinstance(metrics, Tensor) else float(metrics)
        if self._is_better(value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        if self.resting:
            self.resting -= 1
            self.waited = 0
        if self.waited > self.patience:
            for part, least in zip(self.optimizer.parts, self.min_lrs, strict=True):
                old = part.rate()
                new = max(old * self.factor, least)
                if old - new > self.eps:
                    part.set_rate(new)
            self.resting, self.waited = self.cooldown, 0

    def _is_better(self, value: float) -> bool:
        sign = 1.0 if self.mode == "max" else -1.0
        if self.threshold_mode == "abs":
            return value * sign > self.best * sign + self.threshold
        return value * sign > self.best * (sign + self.threshold)

    def get_last_lr(self) -> list[float]:
        """The rates of the groups as they are."""
        return [part.rate() for part in self.optimizer.parts]

    def state_dict(self) -> dict[str, Any]:
        """The best measure and the counts of steps."""
        return {name: getattr(self, name) for name in ("best", "waited", "resting")}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.best = float(state_dict["best"])
        self.waited, self.resting = int(state_dict["waited"]), int(state_dict["resting"])
