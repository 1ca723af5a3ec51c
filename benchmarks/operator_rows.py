"""What rows of operators are made of: `operators.py` measures them, `further_rows.py` has more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as torch_functions

import tilework.nn.functional as functions

if TYPE_CHECKING:
    from collections.abc import Callable

RNG = np.random.default_rng(0)


class Row(NamedTuple):
    """One operator; without `theirs` both packages have it by the same name.

    `kind` is the dtype that the arrays are converted to; "" leaves them.  What is a tuple has
    several results, which are all made.
    """

    name: str
    arrays: tuple[Any, ...]
    ours: Callable[..., Any]
    theirs: Callable[..., Any] | None = None
    is_captured: bool = True
    is_random: bool = False
    kind: str = ""


def best(call: Callable[[], Any], seconds: float) -> float:
    """The least of the calls in so many seconds, in milliseconds."""
    call()
    least, end = float("inf"), time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        least = min(least, now - start)
        if now > end:
            return least * 1e3


def normal(*shape: int) -> Any:
    """Normal numbers in float32."""
    return RNG.standard_normal(shape, dtype=np.float32)


def alike(name: str, arrays: tuple[Any, ...], make: Callable[..., Any], kind: str = "") -> Row:
    """A row of functions that both packages have in `nn.functional`; `make` is given that first."""
    return Row(
        name,
        arrays,
        lambda *xs: make(functions, *xs),
        lambda *xs: make(torch_functions, *xs),
        kind=kind,
    )


def gradients(
    name: str, arrays: tuple[Any, ...], weights: Any, make: Callable[..., Any], kind: str = ""
) -> Row:
    """A row of the gradients by all `arrays` of what `make` gives, weighed by `weights`."""

    def ours(*xs: Any) -> Any:
        *inputs, by = xs
        return tuple((make(functions, *inputs) * by).sum().gradient(*inputs))

    def theirs(*xs: Any) -> Any:
        *inputs, by = xs
        inputs = [each.detach().requires_grad_(True) for each in inputs]
        return torch.autograd.grad(make(torch_functions, *inputs), inputs, by)

    return Row(name, (*arrays, weights), ours, theirs, kind=kind)
