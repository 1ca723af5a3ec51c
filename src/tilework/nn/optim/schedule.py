"""Learning rates that change from step to step; the rate is a tensor, so captures follow it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilework.base.errors import UserError
from tilework.nn.optim.optimizer import Optimizer
from tilework.tensor.tensor import Tensor


class Schedule:
    """Sets the rate of an optimizer to its first one times `factor(step)`.

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
        self.optimizer = optimizer
        self.base = float(optimizer.lr.item())
        self.factor = factor
        self.count = 0
        self._set(self.base * factor(0))

    def _set(self, rate: float) -> None:
        lr = self.optimizer.lr
        lr.assign(Tensor([rate], dtype=lr.dtype, device=lr.device)).realize()

    def step(self) -> None:
        """Go to the next rate."""
        self.count += 1
        self._set(self.base * self.factor(self.count))

    def get_last_lr(self) -> float:
        """The rate that was set last."""
        return self.base * self.factor(self.count)


class StepLR(Schedule):
    """The rate times `gamma` after each `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        if step_size < 1:
            raise UserError("StepLR: the size must be at least 1", got=step_size)
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
        super().__init__(
            optimizer, lambda step: (1 - min(step, total_iters) / total_iters) ** power
        )


class CosineAnnealingLR(Schedule):
    """The rate to `eta_min` over `T_max` steps, along half a wave of a cosine, and up again."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        base = float(optimizer.lr.item())

        def factor(step: int) -> float:
            wave = (1 + math.cos(math.pi * step / T_max)) / 2
            return (eta_min + (base - eta_min) * wave) / base

        super().__init__(optimizer, factor)


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
        def factor(step: int) -> float:
            return math.prod([lr_lambda(number) for number in range(1, step + 1)])

        super().__init__(optimizer, factor)


class ConstantLR(Schedule):
    """The rate times `factor` for the first `total_iters` steps."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5) -> None:
        super().__init__(optimizer, lambda step: factor if step < total_iters else 1.0)


class CosineAnnealingWarmRestarts(Schedule):
    """Half a wave of a cosine down to `eta_min` again and again, each `T_mult` times as long."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0
    ) -> None:
        if T_0 < 1 or T_mult < 1:
            raise UserError(
                "CosineAnnealingWarmRestarts: lengths must be at least 1",
                got=f"T_0={T_0}, T_mult={T_mult}",
                expected="integers from 1 on",
            )
        base = float(optimizer.lr.item())

        def factor(step: int) -> float:
            length, rest = T_0, step
            while rest >= length:
                rest -= length
                length *= T_mult
            wave = (1 + math.cos(math.pi * rest / length)) / 2
            return (eta_min + (base - eta_min) * wave) / base

        super().__init__(optimizer, factor)


class OneCycleLR(Schedule):
    """Up to `max_lr`, down to the first rate and below, along half waves of a cosine.

    Args:
        optimizer: whose rate is set.
        max_lr: the greatest rate.
        total_steps: all steps.
        pct_start: the share of them in which the rate grows.
        div_factor: the first rate is `max_lr` divided by it.
        final_div_factor: the last rate is the first divided by it.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int,
        pct_start: float = 0.3,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
    ) -> None:
        base = float(optimizer.lr.item())
        first = max_lr / div_factor
        top, end = pct_start * total_steps - 1, total_steps - 1

        def factor(step: int) -> float:
            if step <= top:
                return _waved(first, max_lr, step / top if top else 1.0) / base
            share = min((step - top) / (end - top), 1.0) if end > top else 1.0
            return _waved(max_lr, first / final_div_factor, share) / base

        super().__init__(optimizer, factor)


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
        base = float(optimizer.lr.item())
        down = step_size_up if step_size_down is None else step_size_down

        def factor(step: int) -> float:
            turn, rest = divmod(step, step_size_up + down)
            share = (
                rest / step_size_up if rest <= step_size_up else 1 - (rest - step_size_up) / down
            )
            height = (max_lr - base_lr) * (0.5**turn if mode == "triangular2" else 1.0)
            return (base_lr + height * share) / base

        super().__init__(optimizer, factor)


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
        first = schedulers[0].base
        optimizer.lr.assign(Tensor([first], dtype=optimizer.lr.dtype, device=optimizer.lr.device))
        starts = [0, *milestones]

        def factor(step: int) -> float:
            place = max(number for number, start in enumerate(starts) if start <= step)
            return schedulers[place].factor(step - starts[place])

        super().__init__(optimizer, factor)


def _waved(start: float, end: float, share: float) -> float:
    """Between two rates along half a wave of a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


class ReduceLROnPlateau:
    """The rate times `factor` when a measure has not become less for more than `patience` steps.

    Args:
        optimizer: whose rate is set.
        factor: what the rate is multiplied with.
        patience: steps without progress that are tolerated.
        threshold: progress is a measure below (1 - threshold) times the best one.
        min_lr: the least rate.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        min_lr: float = 0.0,
    ) -> None:
        self.optimizer = optimizer
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.min_lr = min_lr
        self.best = math.inf
        self.waited = 0

    def step(self, measure: float | Tensor) -> None:
        """Tell the measure of a step."""
        value = float(measure.item()) if isinstance(measure, Tensor) else float(measure)
        if value < self.best * (1 - self.threshold):
            self.best, self.waited = value, 0
            return
        self.waited += 1
        if self.waited > self.patience:
            lr = self.optimizer.lr
            rate = max(float(lr.item()) * self.factor, self.min_lr)
            lr.assign(Tensor([rate], dtype=lr.dtype, device=lr.device)).realize()
            self.waited = 0
