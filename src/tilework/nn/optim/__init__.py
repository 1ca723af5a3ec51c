"""Optimizers: they change parameters in place, all of them in one go."""

from __future__ import annotations

from tilework.nn.optim.adam import LAMB, Adam, Adamax, AdamW, NAdam, RAdam
from tilework.nn.optim.adaptive import ASGD, Adadelta, Adafactor, Adagrad, RMSprop, Rprop
from tilework.nn.optim.average import EMA
from tilework.nn.optim.clipping import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from tilework.nn.optim.combined import ChainedScheduler, SequentialLR
from tilework.nn.optim.cycles import CyclicLR, OneCycleLR
from tilework.nn.optim.lbfgs import LBFGS
from tilework.nn.optim.optimizer import Optimizer, OptimizerGroup
from tilework.nn.optim.plateau import ReduceLROnPlateau
from tilework.nn.optim.schedule import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CosineWarmupLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    Schedule,
    StepLR,
)
from tilework.nn.optim.sgd import LARS, SGD, Muon
from tilework.nn.optim.sparse import SparseAdam
from tilework.tensor.wrong_calls import tell

__all__ = [
    "ASGD", "EMA", "LAMB", "LARS", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam",
    "AdamW", "Adamax", "ChainedScheduler", "ConstantLR", "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts", "CosineWarmupLR", "CyclicLR", "ExponentialLR", "LambdaLR",
    "LinearLR", "MultiStepLR", "MultiplicativeLR", "Muon", "NAdam", "OneCycleLR", "Optimizer",
    "OptimizerGroup", "PolynomialLR", "RAdam", "RMSprop", "ReduceLROnPlateau", "Rprop", "Schedule",
    "SequentialLR", "SparseAdam", "StepLR", "clip_grad_norm_", "clip_grad_value_",
    "clip_grads_with_norm_", "get_total_norm",
]  # fmt: skip

tell(__name__, __all__)
