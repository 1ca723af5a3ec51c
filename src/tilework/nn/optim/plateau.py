"""Rates that fall when a measure stops getting better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilework.base.errors import UserError
from tilework.nn.optim.optimizer import Optimizer
from tilework.nn.optim.schedule import each_group
from tilework.tensor.tensor import Tensor


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
        self.min_lrs = each_group("ReduceLROnPlateau", optimizer, min_lr)
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
