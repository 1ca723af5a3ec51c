"""Kernel names say what is computed and are unique."""

from __future__ import annotations

import re

import pytest

from tilework import Tensor
from tilework.codegen.pipeline import lower_kernel
from tilework.schedule.call import transform_to_call
from tilework.schedule.pipeline import build_schedule
from tilework.target.known.cpu import x86_level_spec


def _name(result: Tensor) -> str:
    schedule = build_schedule(transform_to_call([result.node]).function)
    return lower_kernel(schedule.linear.src[-1].src[0], x86_level_spec("x86-64-v3")).name


def _zeros(*shape: int) -> Tensor:
    return Tensor.zeros(*shape).contiguous().realize()


@pytest.mark.parametrize(
    ("make", "start"),
    [
        (lambda: _zeros(8, 16) @ _zeros(16, 32), "contraction_8x32_over_16_"),
        (lambda: _zeros(8, 16).exp().sum(1), "reduction_8_over_16_exp_"),
        (lambda: _zeros(8, 16) + 1, "elementwise_128_"),
        (lambda: _zeros(4, 8).cumsum(1), "scan_4x8_"),
        (lambda: _zeros(4, 8).argsort(), "sort_"),
    ],
)
def test_a_name_tells_kind_and_sizes(make: object, start: str) -> None:
    assert callable(make)
    assert _name(make()).startswith(start)


def test_a_name_is_a_plain_identifier() -> None:
    assert re.fullmatch(r"[a-z0-9_x]+", _name(_zeros(3, 5).tanh()))


def test_kernels_of_one_kind_and_size_differ_in_name() -> None:
    assert _name(_zeros(8, 16) + 1) != _name(_zeros(8, 16) + 2)
