"""Steps along the gradient: plain, with momentum, scaled by layer, made orthogonal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilework.base.errors import UserError
from tilework.nn.optim.optimizer import Optimizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.nn.optim.groups import Params
    from tilework.tensor.tensor import Tensor


class LARS(Optimizer):
    """Momentum whose step for each parameter is scaled to the parameter (You and others, 2017).

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        momentum: share of the last step that is kept.
        weight_decay: of the parameter, added to its gradient.
        ns_steps: rounds of the iteration that makes a step nearly orthogonal; 0 leaves it out.
        ns_coefficients: of that iteration; see `Tensor.newton_schulz`.
        nesterov: look ahead by one step of momentum.
        classic: multiply with the learning rate before momentum, not after it.
        pre_wd: add the weight decay to the gradient, before momentum; else to the step.
        tcoef: the scale's coefficient; 0 leaves the scaling out.
        device: see `Optimizer`.
        fused: see `Optimizer`.
        dampening: what the gradient loses when it is added to the last step.
        maximize: go along the gradient, not against it.

    Raises:
        UserError: the momentum is negative.
    """

    _decays_gradient = False

    def __init__(  # noqa: PLR0913  # the arguments that programs give
        self,
        params: Params,
        lr: float | Tensor = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        ns_steps: int = 0,
        ns_coefficients: Sequence[float] | None = None,
        nesterov: bool = False,
        classic: bool = True,
        pre_wd: bool = True,
        tcoef: float = 0.001,
        device: str | None = None,
        fused: bool = False,
        *,
        dampening: float = 0.0,
        maximize: bool = False,
    ) -> None:
        if momentum < 0:
            raise UserError("optimizer: the momentum is negative", got=momentum)
        if not isinstance(nesterov, bool) or not isinstance(classic, bool):
            raise UserError(
                "optimizer: nesterov and classic must be True or False",
                got=f"{nesterov!r}, {classic!r}",
                try_="what follows momentum by name: its order differs between libraries",
            )
        super().__init__(params, lr, device, fused, weight_decay=weight_decay, maximize=maximize)
        self.momentum: float | Tensor = momentum
        self.ns_steps = ns_steps
        self.ns_coefficients = None if ns_coefficients is None else tuple(ns_coefficients)
        self.nesterov = nesterov
        self.classic = classic
        self.pre_wd = pre_wd
        self.tcoef = tcoef
        self.dampening = dampening
        self.b = self._state(self.params) if momentum else []
        if dampening:
            # Steps that were made: the first one is taken whole.
            self.steps = self._number(0.0)

    def set_momentum(self, momentum: float) -> None:
        """Change the share of the last step that is kept by the first group; captures follow."""
        self.momentum = self._held_momentum(self.momentum, momentum)
        self._given["momentum"] = momentum
        if not self.b:
            self.b = self._state(self.params)

    def _step(self, number: int, value: Tensor, g: Tensor, written: list[Tensor]) -> Tensor:
        rate = self._rate(g)
        if self.tcoef:
            rate = rate * self._trust(value, g)
        if self.pre_wd and self.weight_decay:
            g = g + value * self.weight_decay
        if self.classic:
            g = g * rate
        if self.b:
            b, share = self.b[number], self._as(self.momentum, g)
            b.assign(b * share + self._dampened(g))
            written.append(b)
            g = g + b * share if self.nesterov else b
        g = self._direction(g)
        step = g if self.classic else g * rate
        if self.weight_decay and not self.pre_wd:
            step = step + value * (self._rate(g) * self.weight_decay)
        return step

    def _direction(self, g: Tensor) -> Tensor:
        """What a step becomes before it is scaled by the rate."""
        if self.ns_coefficients is None:
            return g
        flat = g.reshape(g.shape[0], -1)
        return flat.newton_schulz(self.ns_steps, self.ns_coefficients).reshape(g.shape)

    def _dampened(self, g: Tensor) -> Tensor:
        """What the velocity gets of a gradient."""
        if not self.dampening:
            return g
        is_first = self.steps.eq(0).cast(g.dtype)
        return g * (1 - self.dampening * (1 - is_first))

    def _end(self) -> list[Tensor]:
        if not self.dampening:
            return []
        self.steps += 1
        return [self.steps]

    def _trust(self, value: Tensor, g: Tensor) -> Tensor:
        """The norm of the parameter over that of its gradient; 1 where one of them is 0."""
        a, b = value.square().sum().sqrt(), g.square().sum().sqrt()
        is_usable = (a > 0) & (b > 0)
        return is_usable.where(
            a * self.tcoef / is_usable.where(b + a * self.weight_decay, 1.0), 1.0
        )


class SGD(LARS):
    """Steps against the gradient, with momentum as PyTorch has it.

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        momentum: share of the last step that is kept.
        dampening: what the gradient loses when it is added to the last step.
        weight_decay: of the parameter, added to its gradient.
        nesterov: look ahead by one step of momentum.
        maximize: go along the gradient, not against it.
        classic: multiply with the learning rate before momentum, not after it.
        device: see `Optimizer`.
        fused: see `Optimizer`.

    Raises:
        UserError: Nesterov's momentum with dampening, or of 0.
    """

    def __init__(  # noqa: PLR0913  # the arguments that programs give
        self,
        params: Params,
        lr: float | Tensor = 0.001,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        classic: bool = False,
        device: str | None = None,
        fused: bool | None = None,
    ) -> None:
        if nesterov and (dampening or not momentum):
            raise UserError(
                "optimizer: Nesterov's momentum has no dampening, and is above 0",
                got=f"momentum {momentum}, dampening {dampening}",
                try_="momentum=0.9",
            )
        super().__init__(
            params, lr, momentum, weight_decay, 0, None, nesterov, classic,
            tcoef=0.0, device=device, fused=bool(fused), dampening=dampening, maximize=maximize,
        )  # fmt: skip


class Muon(LARS):
    """Momentum whose steps are made nearly orthogonal (Jordan, 2024).

    Args:
        params: see `Optimizer`; each has two axes at least.
        lr: the learning rate.
        weight_decay: of the parameter, added to the step.
        momentum: share of the last step that is kept.
        nesterov: look ahead by one step of momentum.
        ns_coefficients: of the iteration that makes a step orthogonal; see `Tensor.newton_schulz`.
        eps: the least norm that a step is divided by before that.
        ns_steps: rounds of that iteration.
        adjust_lr_fn: how a step is scaled to a matrix of a rows and b columns: "original" (or None)
            by sqrt(max(1, a / b)), "match_rms_adamw" by 0.2 * sqrt(max(a, b)), "none" not at all.
        device: see `Optimizer`.
        fused: see `Optimizer`.

    Raises:
        UserError: the scaling is unknown, or `ns_steps` is no number.
    """

    def __init__(  # noqa: PLR0913  # the arguments that programs give
        self,
        params: Params,
        lr: float | Tensor = 0.001,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: Sequence[float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        *,
        device: str | None = None,
        fused: bool | None = None,
    ) -> None:
        if isinstance(ns_steps, bool):
            raise UserError("Muon: ns_steps must be a number", got=ns_steps)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw", "none"):
            raise UserError(
                "Muon: unknown scaling",
                got=adjust_lr_fn,
                expected="original, match_rms_adamw or none",
            )
        super().__init__(
            params, lr, momentum, weight_decay, ns_steps, ns_coefficients, nesterov,
            classic=False, pre_wd=False, tcoef=0.0, device=device, fused=bool(fused),
        )  # fmt: skip
        self.eps = eps
        self.adjust_lr_fn = adjust_lr_fn

    def _direction(self, g: Tensor) -> Tensor:
        flat = g.reshape(g.shape[0], -1)
        found = flat.newton_schulz(self.ns_steps, self.ns_coefficients or (), self.eps)
        rows, columns = flat.shape
        if self.adjust_lr_fn == "match_rms_adamw":
            found = found * (0.2 * math.sqrt(max(rows, columns)))
        elif self.adjust_lr_fn != "none":
            found = found * math.sqrt(max(1.0, rows / columns))
        return found.reshape(g.shape)
