"""Learning rates that change from step to step; the rate is a tensor, so captures follow it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilework.base.errors import UserError
from tilework.nn.optim.groups import FIRST_RATE
from tilework.nn.optim.optimizer import Optimizer

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
        >>> from tilework import Tensor
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


def each_group(schedule: str, optimizer: Optimizer, value: Any) -> list[Any]:
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


def check_counts(schedule: str, **counts: int) -> None:
    """Raises: UserError: a number of steps is below 1."""
    for name, count in counts.items():
        if count < 1:
            raise UserError(
                f"{schedule}: `{name}` is too small", got=count, expected="at least one step"
            )


def straight(start: float, end: float, share: float) -> float:
    """Between two rates along a line."""
    return start + (end - start) * share


def waved(start: float, end: float, share: float) -> float:
    """Between two rates along half a wave of a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


class StepLR(Schedule):
    """The rate times `gamma` after each `step_size` steps."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        check_counts("StepLR", step_size=step_size)
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
        check_counts("PolynomialLR", total_iters=total_iters)
        super().__init__(
            optimizer, lambda step: (1 - min(step, total_iters) / total_iters) ** power, last_epoch
        )


class CosineAnnealingLR(Schedule):
    """The rate to `eta_min` over `T_max` steps, along half a wave of a cosine, and up again."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        check_counts("CosineAnnealingLR", T_max=T_max)
        self._start(
            optimizer, lambda _, base: lambda step: waved(base, eta_min, step / T_max), last_epoch
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
        factors = each_group("LambdaLR", optimizer, lr_lambda)
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
        factors = each_group("MultiplicativeLR", optimizer, lr_lambda)

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
        check_counts("CosineAnnealingWarmRestarts", T_0=T_0, T_mult=T_mult)

        def share(step: int) -> float:
            length, rest = T_0, step
            if T_mult == 1:
                rest %= T_0
            while rest >= length:
                rest -= length
                length *= T_mult
            return rest / length

        self._start(
            optimizer, lambda _, base: lambda step: waved(base, eta_min, share(step)), last_epoch
        )
