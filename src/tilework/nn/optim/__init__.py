"""Optimizers: they change parameters in place, all of them in one go."""

from __future__ import annotations

from tilework.nn.optim.adam import LAMB, Adam, AdamW
from tilework.nn.optim.adaptive import Adadelta, Adagrad, Adamax, RMSprop
from tilework.nn.optim.average import EMA, clip_grad_norm_, clip_grad_value_
from tilework.nn.optim.optimizer import Optimizer, OptimizerGroup
from tilework.nn.optim.schedule import (
    CosineAnnealingLR,
    CosineWarmupLR,
    ExponentialLR,
    LinearLR,
    MultiStepLR,
    PolynomialLR,
    ReduceLROnPlateau,
    Schedule,
    StepLR,
)
from tilework.nn.optim.sgd import LARS, SGD, Muon

__all__ = [
    "EMA", "LAMB", "LARS", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax",
    "CosineAnnealingLR", "CosineWarmupLR", "ExponentialLR", "LinearLR", "MultiStepLR", "Muon",
    "Optimizer", "OptimizerGroup", "PolynomialLR", "RMSprop", "ReduceLROnPlateau", "Schedule",
    "StepLR", "clip_grad_norm_", "clip_grad_value_",
]  # fmt: skip
