"""PyTorch's own sample inputs of each operator, the same in each run."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import torch
from tests.differential.judge import Sample

DTYPES = (
    torch.float32, torch.int64, torch.int32, torch.bool, torch.float64, torch.float16,
    torch.bfloat16, torch.uint8, torch.int8, torch.int16,
)  # fmt: skip


@cache
def operators() -> dict[str, Any]:
    """All of PyTorch's operator descriptions by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {full_name(op): op for op in op_db}


def full_name(op: Any) -> str:
    """The name of an operator with that of its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def samples_of(op: Any, dtype: torch.dtype) -> Iterator[Sample]:
    """The samples of an operator in one dtype."""
    np.random.seed(7)
    random.seed(7)
    # PyTorch seeds anew before each sample; torch.manual_seed keeps a text of the stack for each
    # kind of device that is not there, which takes longer than some of the samples.
    with mock.patch("torch.manual_seed", torch.default_generator.manual_seed):
        yield from _made(op, dtype)


def _made(op: Any, dtype: torch.dtype) -> Iterator[Sample]:
    torch.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in op.sample_inputs("cpu", dtype, requires_grad=False):
            yield Sample(each.input, tuple(each.args), dict(each.kwargs))
