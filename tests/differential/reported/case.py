"""One small program with its right answer, and the ways in which it is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tilework import Tensor, jit
from tilework.base import settings

Array = Any
#: The ways: as written, over strided and flipped views, captured and replayed, interpreted.
WAYS = ("plain", "view", "captured", "interpreted")


@dataclass(frozen=True)
class Case:
    """A program over arrays; `truth` says what it gives, from the same arrays."""

    name: str
    inputs: Sequence[Array]
    ours: Callable[..., Any]
    truth: Callable[..., Any]
    relative: float = 1e-5
    absolute: float = 1e-6
    #: Whether it can be captured: what reads sizes or numbers can't.
    is_captured: bool = True


def by_torch(name: str, inputs: Sequence[Array], call: Callable[..., Any], **options: Any) -> Case:
    """A call that PyTorch spells in the same way."""

    def truth(*arrays: Array) -> Any:
        return call(*[torch.tensor(array.copy()) for array in arrays])

    return Case(name, inputs, call, truth, **options)


def by_numpy(name: str, inputs: Sequence[Array], call: Callable[..., Any], **options: Any) -> Case:
    """A call that NumPy spells in the same way; it may write into its arguments."""

    def truth(*arrays: Array) -> Any:
        return call(*[array.copy() for array in arrays])

    def ours(*tensors: Tensor) -> Any:
        return call(*[tensor.clone() for tensor in tensors])

    return Case(name, inputs, ours, truth, **options)


def exactly(name: str, inputs: Sequence[Array], call: Callable[..., Any], want: Array) -> Case:
    """A call with its answer."""
    return Case(name, inputs, call, lambda *arrays: want, 0.0, 0.0)


def fault_of(case: Case, way: str) -> str:
    """What is wrong with the answer of a program run in this way, or an empty text."""
    arrays = [np.asarray(array) for array in case.inputs]
    truth = case.truth(*arrays)
    if way == "plain":
        return _difference(case, case.ours(*[Tensor(array) for array in arrays]), truth)
    if way == "view":
        return _difference(case, case.ours(*[_as_view(array) for array in arrays]), truth)
    if way == "interpreted":
        with settings.override(dev="PYTHON"):
            found = case.ours(*[Tensor(array, device="PYTHON") for array in arrays])
            return _difference(case, found, truth)
    if not case.is_captured:
        return ""
    captured = jit(case.ours)
    for number in range(3):
        found = captured(*[Tensor(array).realize() for array in arrays])
        if fault := _difference(case, found, truth):
            return f"call {number}: {fault}"
    return ""


def _as_view(array: Array) -> Tensor:
    """The same numbers as every second element of a larger tensor, backwards, axes turned."""
    if not array.ndim:
        return Tensor(np.stack([array, array]))[1]
    wide = np.zeros((2 * array.shape[0] + 1, *array.shape[1:]), array.dtype)
    wide[1::2] = array[::-1]
    turned = Tensor(np.ascontiguousarray(np.moveaxis(wide, 0, -1))).realize()
    axes = (array.ndim - 1, *range(array.ndim - 1))
    return turned.permute(*axes)[1::2].flip(0)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in _flat(each)]
    return [value]


def _as_array(value: Any) -> Array:
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return (value.float() if value.dtype is torch.bfloat16 else value).numpy()
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value)


def _difference(case: Case, ours: Any, truth: Any) -> str:
    found, expected = _flat(ours), _flat(truth)
    if len(found) != len(expected):
        return f"{len(found)} results, expected {len(expected)}"
    for number, (x, y) in enumerate(zip(found, expected, strict=True)):
        a, b = _as_array(x), _as_array(y)
        if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
            return f"result {number}: {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
        if a.dtype.kind in "iub":
            is_same = np.array_equal(a.astype(object), b.astype(object))
        else:
            wide = a.astype(np.float64), b.astype(np.float64)
            is_same = np.allclose(*wide, case.relative, case.absolute, equal_nan=True)
        if not is_same:
            return f"result {number}: {a.ravel()[:16].tolist()}, expected {b.ravel()[:16].tolist()}"
    return ""
