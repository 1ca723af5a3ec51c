"""Gradients: each rule against differences, and the places where conventions decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.differential.samples import operators
from tests.differential.table import NO_GRADIENT, comparison_of

from tilework import Tensor
from tilework.ir.node import OpDef
from tilework.ir.ops import OPS
from tilework.ir.ops.math import BITCAST, CAST, CONST, WHERE
from tilework.ir.stage import Stage
from tilework.tensor.autograd import table, tape

assert tape.backward is not None  # its import registers the rules
SPECIAL = (CONST, CAST, BITCAST, WHERE)
ELEMENTWISE = [
    op for op in OPS.values()
    if op.elementwise and Stage.TENSOR in op.stages and op in table.RULES and op not in SPECIAL
]  # fmt: skip
#: Where the domain of an op is not (0, 1).
SHIFTED = {"acosh": 1.5, "fmod": 3.0}
#: Ops that are made of steps: their derivative is 0 between them.
STEP = 1e-6


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_the_rule_of_each_elementwise_op_is_the_limit_of_differences(op: OpDef) -> None:
    generator = np.random.default_rng(len(op.name))
    count = len(op.operands)
    values = [0.1 + 0.8 * generator.random(40) for _ in range(count)]
    values[0] += SHIFTED.get(op.name, 0.0)

    def computed(arrays: list[Any]) -> Any:
        first, *rest = [Tensor(x) for x in arrays]
        return first._apply(op, *rest).numpy()

    leaves = [Tensor(x) for x in values]
    total = leaves[0]._apply(op, *leaves[1:]).sum()
    if not total.dtype.is_float:
        pytest.fail("an op with a gradient gives floats")
    gradients = total.gradient(*leaves, materialize_grads=True)
    for place, gradient in enumerate(gradients):
        low, high = [list(values), list(values)]
        low[place], high[place] = values[place] - STEP, values[place] + STEP
        slope = (computed(high) - computed(low)) / (2 * STEP)
        np.testing.assert_allclose(gradient.numpy(), slope, rtol=1e-6, atol=1e-6)


def test_each_operator_without_a_compared_gradient_says_why() -> None:
    bare = [
        name for name, op in operators().items()
        if not isinstance(how := comparison_of(op, name), str)
        and op.supports_autograd and not how.has_gradient
    ]  # fmt: skip
    assert set(bare) == set(NO_GRADIENT)
    assert all(len(why.split()) > 3 for why in NO_GRADIENT.values())


# --- conventions -------------------------------------------------------------------------------


def gradients(ours: Any, theirs: Any, *arrays: Any, order: int = 1) -> None:
    """Both sides' gradients (of the given order) of a sum are equal."""
    own = [Tensor(x) for x in arrays]
    other = [torch.tensor(x, requires_grad=True) for x in arrays]
    a, b = ours(*own).sum(), theirs(*other).sum()
    found: list[Any] = []
    wanted: list[Any] = []
    for _ in range(order):
        found = a.gradient(*own, materialize_grads=True)
        wanted = list(torch.autograd.grad(b, other, create_graph=True, allow_unused=True))
        wanted = [
            torch.zeros_like(x) if g is None else g for x, g in zip(other, wanted, strict=True)
        ]
        a, b = sum(g.sum() for g in found), sum(g.sum() for g in wanted)
        if not b.requires_grad:
            break
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x.numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)


TIES = np.array([[1.0, 3, 3], [2, 2, 2], [0, -1, 0]])
HOLES = np.array([1.0, np.nan, -2, 0])


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_equal_extremes_share_the_gradient(name: str) -> None:
    for axis in (0, 1, (0, 1)):
        gradients(
            lambda x, axis=axis: getattr(x, name)(axis),
            lambda x, axis=axis: getattr(torch, name)(x, axis),
            TIES,
        )


def test_equal_operands_of_a_maximum_share_the_gradient() -> None:
    gradients(lambda x, y: x.maximum(y), torch.maximum, TIES, TIES.T.copy())


def test_the_first_of_equals_in_a_window_gets_the_gradient() -> None:
    image = np.zeros((1, 1, 4, 4))
    gradients(lambda x: x.max_pool2d(2), lambda x: F.max_pool2d(x, 2), image)
    gradients(
        lambda x: x.max_pool2d(3, stride=1, padding=1),
        lambda x: F.max_pool2d(x, 3, stride=1, padding=1),
        image,
    )
    gradients(
        lambda x: x.adaptive_max_pool2d((3, 2)), lambda x: F.adaptive_max_pool2d(x, (3, 2)), image
    )


def test_a_branch_that_is_not_taken_gives_zero() -> None:
    gradients(lambda x: (x > 0).where(x * x, 0.0), lambda x: torch.where(x > 0, x * x, 0.0), HOLES)
    safe = np.array([4.0, 0.0, -1.0])
    gradients(
        lambda x: (x > 0).where((x > 0).where(x, 1.0).sqrt(), 0.0),
        lambda x: torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0),
        safe,
    )


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_reductions_of_empty_axes_have_empty_or_zero_gradients(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape)
    for name in ("sum", "prod"):
        gradients(lambda x, n=name: getattr(x, n)(0), lambda x, n=name: getattr(x, n)(0), x)
    y = np.ones((shape[-1], 2))
    gradients(lambda x, y: x.matmul(y) * 2, lambda x, y: x.matmul(y) * 2, x, y)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_gradients_of_gradients(order: int) -> None:
    x = np.array([0.3, -0.7, 1.2])
    for ours, theirs in (
        (lambda x: (x.sin() * x).exp(), lambda x: (x.sin() * x).exp()),
        (lambda x: x.tanh() * x * x, lambda x: x.tanh() * x * x),
        (lambda x: x.softmax(0) * x, lambda x: x.softmax(0) * x),
        (lambda x: x.sigmoid().log(), lambda x: x.sigmoid().log()),
    ):
        gradients(ours, theirs, x, order=order)


def test_products_with_zeros_have_their_gradients() -> None:
    for row in ([0.0, 2, 3], [0.0, 0, 3], [1.0, 2, 3]):
        gradients(lambda x: x.prod(0), lambda x: x.prod(0), np.array(row), order=2)


def test_lengths_and_deviations_have_gradient_zero_at_zero() -> None:
    x = np.zeros(3)
    gradients(lambda x: x.norm(), lambda x: x.norm(), x)
    leaf = Tensor(x)
    np.testing.assert_array_equal(leaf.std().gradient(leaf)[0].numpy(), np.zeros(3))


def test_writes_through_views_pass_gradients_to_what_was_written_and_what_stayed() -> None:
    def change(x: Any, value: Any) -> Any:
        y = x * 1
        view = y.transpose(0, 1)
        view[1:] = view[1:] * 2 + value
        y[0] = (y[-1] * 1) * value
        return y * y

    gradients(change, change, TIES.copy(), np.array(2.0))
    gradients(change, change, TIES.copy(), np.array(2.0), order=2)


def test_a_checkpoint_of_a_checkpoint_has_second_gradients() -> None:
    def kept(x: Tensor) -> Any:
        return Tensor.checkpoint(lambda x: Tensor.checkpoint(lambda y: (y * y).sin(), x) * x, x)

    gradients(kept, lambda x: (x * x).sin() * x, np.array([0.5, 1.5]), order=2)
