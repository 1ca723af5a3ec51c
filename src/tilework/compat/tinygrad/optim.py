"""What `from tinygrad.nn.optim import ...` gives: the optimizers, with arguments in its order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.nn import optim
from tilework.nn.optim import (
    ASGD,
    EMA,
    LAMB,
    LARS,
    LBFGS,
    Adadelta,
    Adafactor,
    Adagrad,
    Adamax,
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CosineWarmupLR,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    NAdam,
    OneCycleLR,
    Optimizer,
    OptimizerGroup,
    PolynomialLR,
    RAdam,
    ReduceLROnPlateau,
    RMSprop,
    Rprop,
    Schedule,
    SequentialLR,
    SparseAdam,
    StepLR,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework import Tensor

__all__ = [
    "ASGD", "EMA", "LAMB", "LARS", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam",
    "AdamW", "Adamax", "ChainedScheduler", "ConstantLR", "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts", "CosineWarmupLR", "CyclicLR", "ExponentialLR", "LambdaLR",
    "LinearLR", "MultiStepLR", "MultiplicativeLR", "Muon", "NAdam", "OneCycleLR", "Optimizer",
    "OptimizerGroup", "PolynomialLR", "RAdam", "RMSprop", "ReduceLROnPlateau", "Rprop",
    "Schedule", "SequentialLR", "SparseAdam", "StepLR", "clip_grad_norm_", "clip_grad_value_",
    "clip_grads_with_norm_", "get_total_norm",
]  # fmt: skip


class SGD(optim.SGD):
    """`tilework.nn.optim.SGD`; weight decay follows momentum."""

    def __init__(  # the arguments that programs give
        self,
        params: Sequence[Tensor],
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        classic: bool = False,
        device: str | None = None,
        fused: bool = False,
    ) -> None:
        super().__init__(
            params, lr, momentum, weight_decay=weight_decay,
            nesterov=nesterov and momentum > 0,  # without momentum tinygrad does not ask
            classic=classic, device=device, fused=fused,
        )  # fmt: skip


class Muon(optim.Muon):
    """`tilework.nn.optim.Muon`; momentum is the third, and no step is scaled to its matrix."""

    def __init__(  # noqa: PLR0913  # the arguments that programs give
        self,
        params: Sequence[Tensor],
        lr: float = 0.001,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        ns_coefficients: Sequence[float] = (3.4445, -4.775, 2.0315),
        nesterov: bool = True,
        device: str | None = None,
        fused: bool = False,
    ) -> None:
        super().__init__(
            params, lr, weight_decay, momentum, nesterov, ns_coefficients, ns_steps=ns_steps,
            adjust_lr_fn="none", device=device, fused=fused,
        )  # fmt: skip


class AdamW(optim.AdamW):
    """`tilework.nn.optim.AdamW`; the shares of old means are two arguments."""

    def __init__(  # the arguments that programs give
        self,
        params: Sequence[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        device: str | None = None,
        fused: bool = False,
    ) -> None:
        super().__init__(params, lr, (b1, b2), eps, weight_decay, device=device, fused=fused)


class Adam(optim.Adam):
    """`tilework.nn.optim.Adam`; the shares of old means are two arguments."""

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        device: str | None = None,
        fused: bool = False,
    ) -> None:
        super().__init__(params, lr, (b1, b2), eps, device=device, fused=fused)
