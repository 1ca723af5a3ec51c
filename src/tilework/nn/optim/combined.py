"""Schedules of one optimizer put together: one after the other, or at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilework.base.errors import UserError
from tilework.nn.optim.optimizer import Optimizer
from tilework.nn.optim.schedule import Schedule


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
