"""Optimizers: they change parameters in place, all of them in one go."""

from __future__ import annotations

from tilework.nn.optim.adam import LAMB, Adam, AdamW
from tilework.nn.optim.adaptive import Adadelta, Adagrad, Adamax, RMSprop
from tilework.nn.optim.average import EMA, clip_grad_norm_, clip_grad_value_
from tilework.nn.optim.further import Adafactor, NAdam, RAdam, Rprop
from tilework.nn.optim.optimizer import Optimizer, OptimizerGroup
from tilework.nn.optim.schedule import (
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
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    Schedule,
    SequentialLR,
    StepLR,
)
from tilework.nn.optim.sgd import LARS, SGD, Muon

__all__ = [
    "EMA", "LAMB", "LARS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax",
    "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CosineWarmupLR", "CyclicLR",
    "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "Muon", "NAdam",
    "OneCycleLR", "Optimizer", "OptimizerGroup", "PolynomialLR", "RAdam", "RMSprop",
    "ReduceLROnPlateau", "Rprop", "Schedule", "SequentialLR", "StepLR", "clip_grad_norm_",
    "clip_grad_value_",
]  # fmt: skip
