"""Optimizers: they change parameters in place, all of them in one go."""

from __future__ import annotations

from tilework.nn.optim.adam import LAMB, Adam, AdamW
from tilework.nn.optim.optimizer import Optimizer, OptimizerGroup
from tilework.nn.optim.sgd import LARS, SGD, Muon

__all__ = ["LAMB", "LARS", "SGD", "Adam", "AdamW", "Muon", "Optimizer", "OptimizerGroup"]
