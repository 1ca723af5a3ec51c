"""Learning rates that change from step to step; the rate is a tensor, so captures follow it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilework.base.errors import UserError
from tilework.nn.optim.optimizer import Optimizer
from tilework.tensor.tensor import Tensor


class Schedule:
    """Sets the rate of an optimizer to its first one times `factor(step)`.

    The first rate is the one that the optimizer had before any schedule was made for it.

    Args:
        optimizer: whose rate is set.
        factor: takes the number of `step` calls so far.

    Example:
        >>> from tilework.nn.optim import SGD
        >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.5)
        >>> schedule = Schedule(optimizer, lambda step: 0.1**step)
        >>> schedule.step()
        >>> round(optimizer.lr.item(), 4)
        0.05
    """

    def __init__(self, optimizer: Optimizer, factor: Callable[[int], float]) -> None:
        base = optimizer.first_rate()
        self._start(optimizer, lambda step: base * factor(step))

    def _start(self, optimizer: Optimizer, rate: Callable[[int], float]) -> None:
        """Set the first rate; a schedule that names rates, not factors, begins with this."""
        self.optimizer = optimizer
        self.base = optimizer.first_rate()
        # What the rate is after so many steps.
        self.rate = rate
        self.count = 0
        _set_rate(optimizer, rate(0))

    def step(self) -> None:
        """Go to the next rate."""
        self.count += 1
        _set_rate(self.optimizer, self.rate(self.count))

    def get_last_lr(self) -> float:
        """The rate that was set last."""
        return self.rate(self.count)


def _set_rate(optimizer: Optimizer, rate: float) -> None:
    lr = optimizer.lr
    lr.assign(Tensor([rate], dtype=lr.dtype, device=lr.device)).realize()


def _check_counts(schedule: str, **counts: int) -> None:
    """Raises: UserError: a number of steps is below 1."""
    for name, count in counts.items():
        if count < 1:
            raise UserError(
                f"{schedule}: `{name}` is too small", got=count, expected="at least one step"
            )


class StepLR(Schedule):
    """The rate times `gamma` after each `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        _check_counts("StepLR", step_size=step_size)
        super().__init__(optimizer, lambda step: gamma ** (step // step_size))


class MultiStepLR(Schedule):
    """The rate times `gamma` at each of the `milestones`."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        super().__init__(
            optimizer, lambda step: gamma ** sum([step >= stone for stone in milestones])
        )


class ExponentialLR(Schedule):
    """The rate times `gamma` after each step."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        super().__init__(optimizer, lambda step: gamma**step)


class LinearLR(Schedule):
    """A warm-up: from `start_factor` to `end_factor` of the rate over `total_iters` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
    ) -> None:
        def factor(step: int) -> float:
            share = min(step / total_iters, 1.0) if total_iters else 1.0
            return start_factor + (end_factor - start_factor) * share

        super().__init__(optimizer, factor)


class PolynomialLR(Schedule):
    """The rate down to 0 over `total_iters` steps, by a power of what is left."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0) -> None:
        _check_counts("PolynomialLR", total_iters=total_iters)
        super().__init__(
            optimizer, lambda step: (1 - min(step, total_iters) / total_iters) ** power
        )


class CosineAnnealingLR(Schedule):
    """The rate to `eta_min` over `T_max` steps, along half a wave of a cosine, and up again."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        _check_counts("CosineAnnealingLR", T_max=T_max)
        base = optimizer.first_rate()
        self._start(optimizer, lambda step: _waved(base, eta_min, step / T_max))


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
    """The first rate times `lr_lambda(step)`."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        super().__init__(optimizer, lr_lambda)


class MultiplicativeLR(Schedule):
    """The rate times `lr_lambda(step)` at each step."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        rates = [optimizer.first_rate()]

        def rate(step: int) -> float:
            # Kept, so that many steps ask for as many factors, once each.
            while len(rates) <= step:
                rates.append(rates[-1] * lr_lambda(len(rates)))
            return rates[step]

        self._start(optimizer, rate)


class ConstantLR(Schedule):
    """The rate times `factor` for the first `total_iters` steps."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5) -> None:
        super().__init__(optimizer, lambda step: factor if step < total_iters else 1.0)


class CosineAnnealingWarmRestarts(Schedule):
    """Half a wave of a cosine down to `eta_min` again and again, each `T_mult` times as long."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0
    ) -> None:
        _check_counts("CosineAnnealingWarmRestarts", T_0=T_0, T_mult=T_mult)
        base = optimizer.first_rate()

        def rate(step: int) -> float:
            length, rest = T_0, step
            if T_mult == 1:
                rest %= T_0
            while rest >= length:
                rest -= length
                length *= T_mult
            return _waved(base, eta_min, rest / length)

        self._start(optimizer, rate)


class OneCycleLR(Schedule):
    """Up to `max_lr`, down to the first rate and below, along half waves of a cosine.

    Args:
        optimizer: whose rate is set.
        max_lr: the greatest rate.
        total_steps: all steps, or else ...
        epochs: ... so many times ...
        steps_per_epoch: ... so many.
        pct_start: the share of them in which the rate grows.
        div_factor: the first rate is `max_lr` divided by it.
        final_div_factor: the last rate is the first divided by it.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        *,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
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
        first = max_lr / div_factor
        top, end = pct_start * total_steps - 1, total_steps - 1

        def rate(step: int) -> float:
            if step <= top:
                return _waved(first, max_lr, step / top if top else 1.0)
            share = min((step - top) / (end - top), 1.0) if end > top else 1.0
            return _waved(max_lr, first / final_div_factor, share)

        self._start(optimizer, rate)


class CyclicLR(Schedule):
    """Up from `base_lr` to `max_lr` and down again, in straight lines, over and over.

    Args:
        optimizer: whose rate is set.
        base_lr: the least rate.
        max_lr: the greatest rate.
        step_size_up: steps on the way up.
        step_size_down: steps on the way down; as many as up by default.
        mode: "triangular", or "triangular2", in which each turn is half as high.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float,
        max_lr: float,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
    ) -> None:
        if mode not in ("triangular", "triangular2"):
            raise UserError(
                "CyclicLR: unknown mode", got=mode, expected="triangular or triangular2"
            )
        down = step_size_up if step_size_down is None else step_size_down
        _check_counts("CyclicLR", step_size_up=step_size_up, step_size_down=down)

        def rate(step: int) -> float:
            turn, rest = divmod(step, step_size_up + down)
            share = (
                rest / step_size_up if rest <= step_size_up else 1 - (rest - step_size_up) / down
            )
            height = (max_lr - base_lr) * (0.5**turn if mode == "triangular2" else 1.0)
            return base_lr + height * share

        self._start(optimizer, rate)


class SequentialLR(Schedule):
    """Schedules of one optimizer one after the other, each from its milestone on.

    Args:
        optimizer: whose rate is set.
        schedulers: schedules that were made for it.
        milestones: at which steps the second, the third, ... begin.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[Schedule], milestones: Sequence[int]
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise UserError(
                "SequentialLR: needs a milestone between schedules",
                got=f"{len(milestones)} for {len(schedulers)} schedules",
                expected=f"{len(schedulers) - 1}",
            )
        starts = [0, *milestones]

        def rate(step: int) -> float:
            place = max(number for number, start in enumerate(starts) if start <= step)
            return schedulers[place].rate(step - starts[place])

        self._start(optimizer, rate)


class ChainedScheduler(Schedule):
    """Schedules of one optimizer at once: the first rate times the share that each leaves of it.

    Args:
        schedulers: made for the same optimizer, one after the other.

    Raises:
        UserError: there is none, or they belong to several optimizers.
    """

    def __init__(self, schedulers: Sequence[Schedule]) -> None:
        if not schedulers or any(s.optimizer is not schedulers[0].optimizer for s in schedulers):
            raise UserError(
                "ChainedScheduler: needs schedules of one optimizer",
                got=f"{len(schedulers)} of {len({id(s.optimizer) for s in schedulers})} optimizers",
            )
        optimizer = schedulers[0].optimizer
        first = optimizer.first_rate()

        def rate(step: int) -> float:
            found = first
            for each in schedulers:
                found *= each.rate(step) / each.base if each.base else 0.0
            return found

        self._start(optimizer, rate)


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
        min_lr: the least rate.
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
        min_lr: float = 0.0,
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
        self.min_lr = min_lr
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
            old = float(self.optimizer.lr.item())
            new = max(old * self.factor, self.min_lr)
            if old - new > self.eps:
                _set_rate(self.optimizer, new)
            self.resting, self.waited = self.cooldown, 0

    def _is_better(self, value: float) -> bool:
        sign = 1.0 if self.mode == "max" else -1.0
        if self.threshold_mode == "abs":
            return value * sign > self.best * sign + self.threshold
        return value * sign > self.best * (sign + self.threshold)

    def get_last_lr(self) -> float:
        """The rate as it is."""
        return float(self.optimizer.lr.item())
