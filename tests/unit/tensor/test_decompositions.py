"""Linear algebra in batches: values against NumPy in float64, gradients against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, dtypes
from tilework.base.errors import DTypeError, ShapeError, UserError

RANDOM = np.random.default_rng(0)
SQUARE = RANDOM.standard_normal((2, 4, 4)).astype(np.float32)
TALL = RANDOM.standard_normal((2, 5, 3)).astype(np.float32)
WIDE = RANDOM.standard_normal((2, 3, 5)).astype(np.float32)
SIDES = RANDOM.standard_normal((2, 4, 3)).astype(np.float32)
POSITIVE = SQUARE @ SQUARE.transpose(0, 2, 1) + np.eye(4, dtype=np.float32)
SINGULAR = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32)
Function = Callable[..., Any]


def _magnitudes(parts: Any) -> list[Any]:
    return [part.abs() for part in parts]


@pytest.mark.parametrize(
    ("ours", "theirs", "inputs"),
    [
        (lambda a: a.cholesky(), torch.linalg.cholesky, [POSITIVE]),
        (lambda a: a.cholesky(upper=True), lambda a: torch.linalg.cholesky(a).mT, [POSITIVE]),
        (lambda a: a.qr(), torch.linalg.qr, [SQUARE]),
        (lambda a: a.qr(), torch.linalg.qr, [TALL]),
        (lambda a: a.qr(), torch.linalg.qr, [WIDE]),
        (lambda a: a.lu(), torch.linalg.lu, [SQUARE]),
        (lambda a: a.lu(), torch.linalg.lu, [TALL]),
        (lambda a: a.lu(), torch.linalg.lu, [WIDE]),
        (lambda a, b: a.solve(b), torch.linalg.solve, [SQUARE, SIDES]),
        (lambda a: a.inv(), torch.linalg.inv, [SQUARE]),
        (lambda a: a.det(), torch.linalg.det, [SQUARE]),
        (lambda a: a.slogdet(), torch.linalg.slogdet, [SQUARE]),
        (lambda a: a.eigvalsh(), torch.linalg.eigvalsh, [POSITIVE]),
        (
            lambda a: _magnitudes(a.eigh()),
            lambda a: _magnitudes(torch.linalg.eigh(a)),
            [POSITIVE],
        ),
        (
            lambda a: _magnitudes(a.svd()),
            lambda a: _magnitudes(torch.linalg.svd(a, full_matrices=False)),
            [TALL],
        ),
        (lambda a: a.pinv(), torch.linalg.pinv, [WIDE]),
        (lambda a: a.matrix_exp(), torch.linalg.matrix_exp, [SQUARE]),
        (lambda a, b: a.lstsq(b), lambda a, b: torch.linalg.pinv(a) @ b, [WIDE, SIDES[:, :3]]),
    ],
)
def test_values_and_gradients_agree_with_pytorch(
    ours: Function, theirs: Function, inputs: list[Any]
) -> None:
    own = [Tensor(each, requires_grad=True) for each in inputs]
    other = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in inputs]
    found, expected = ours(*own), theirs(*other)
    found = found if isinstance(found, list | tuple) else [found]
    expected = expected if isinstance(expected, list | tuple) else [expected]
    total: Any = Tensor(0.0)
    reference: Any = 0.0
    for number, (x, y) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_allclose(x.numpy(), y.detach().numpy(), rtol=1e-3, atol=3e-5)
        if y.requires_grad:
            weight = np.random.default_rng(number).standard_normal(y.shape).astype(np.float32)
            total = total + (x * Tensor(weight)).sum()
            reference = reference + (y * torch.tensor(weight)).sum()
    gradients = torch.autograd.grad(reference, other)
    for x, y in zip(total.gradient(*own), gradients, strict=True):
        scale = float(y.abs().max())
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-3, atol=1e-4 * max(scale, 1.0))


def test_a_float64_decomposition_is_exact_to_float64() -> None:
    a = SQUARE.astype(np.float64)
    u, s, v = Tensor(a).svd()
    np.testing.assert_allclose((u * s.unsqueeze(-2)).matmul(v).numpy(), a, atol=1e-13)


def test_the_left_vectors_of_a_singular_matrix_are_orthonormal() -> None:
    u, s, _ = Tensor(SINGULAR).svd()
    np.testing.assert_allclose(u.transpose(0, 1).matmul(u).numpy(), np.eye(3), atol=1e-6)
    assert s.numpy()[2] < 1e-5


def test_full_matrices_are_square_and_orthogonal() -> None:
    u, _, v = Tensor(TALL[0]).svd(full_matrices=True)
    np.testing.assert_allclose(u.transpose(0, 1).matmul(u).numpy(), np.eye(5), atol=1e-5)
    assert v.shape == (3, 3)


def test_the_determinant_of_a_singular_matrix_has_a_gradient() -> None:
    a = np.arange(4, dtype=np.float32).reshape(2, 2) * 0 + np.array([1, 2], np.float32)
    x = Tensor(a, requires_grad=True)
    (found,) = x.det().gradient(x)
    np.testing.assert_allclose(found.numpy(), [[2, -1], [-2, 1]], atol=1e-5)


def test_a_matrix_that_is_not_positive_definite_gives_nan() -> None:
    assert np.isnan(Tensor([[-1.0]]).cholesky().item())


def test_the_rank_leaves_rounding_out() -> None:
    assert Tensor(SINGULAR).matrix_rank().item() == 2


@pytest.mark.parametrize("name", ["inv", "det", "svd", "qr", "eigvalsh", "cholesky"])
def test_matrices_without_elements_are_allowed(name: str) -> None:
    found = getattr(Tensor.zeros(2, 0, 0), name)()
    first = found[0] if isinstance(found, tuple) else found
    assert first.shape[0] == 2


def test_lu_of_rows_without_elements_leaves_them_in_their_order() -> None:
    matrix = Tensor.zeros(2, 3, 0)
    identity = np.broadcast_to(np.eye(3, dtype=np.float32), (2, 3, 3))
    packed, swaps = matrix.lu_factor()
    for found in (matrix.lu(), Tensor.lu_unpack(packed, swaps)):
        assert [part.shape for part in found] == [(2, 3, 3), (2, 3, 0), (2, 0, 0)]
        np.testing.assert_array_equal(found[0].numpy(), identity)


@pytest.mark.parametrize("size", [1, 2, 7, 33])
def test_eigenvalues_of_any_size_agree_with_numpy(size: int) -> None:
    a = np.random.default_rng(size).standard_normal((size, size))
    a = a + a.T
    found, vectors = Tensor(a).eigh()
    np.testing.assert_allclose(found.numpy(), np.linalg.eigvalsh(a), atol=1e-12)
    np.testing.assert_allclose(
        (vectors * found).matmul(vectors.transpose(0, 1)).numpy(), a, atol=1e-12
    )


def test_half_precision_is_computed_in_float32() -> None:
    assert Tensor(POSITIVE).half().cholesky().dtype is dtypes.float16


def test_a_matrix_that_is_not_square_has_no_inverse() -> None:
    with pytest.raises(ShapeError, match="inv: needs square matrices"):
        Tensor(TALL).inv()


def test_integers_are_not_decomposed() -> None:
    with pytest.raises(DTypeError, match="qr: needs floats"):
        Tensor([[1, 2], [3, 4]]).qr()


def test_the_complete_factor_of_a_tall_matrix_says_why_it_has_no_gradient() -> None:
    x = Tensor(TALL, requires_grad=True)
    with pytest.raises(UserError, match="its last columns are free"):
        x.qr("complete")[0].sum().gradient(x)


@pytest.mark.parametrize("size", [40, pytest.param(150, marks=pytest.mark.slow)])
def test_systems_of_several_blocks_are_solved(size: int) -> None:
    random = np.random.default_rng(size)
    a = random.standard_normal((size, size))
    b = random.standard_normal((size, 3))
    np.testing.assert_allclose(a @ Tensor(a).solve(Tensor(b)).numpy(), b, atol=1e-10)
    packed, swaps = Tensor(a).lu_factor()
    expected = torch.linalg.lu_factor(torch.from_numpy(a))
    np.testing.assert_array_equal(swaps.numpy(), expected.pivots.numpy())
    np.testing.assert_allclose(packed.numpy(), expected.LU.numpy(), atol=1e-11)
    positive = a @ a.T + np.eye(size)
    low = Tensor(positive).cholesky().numpy()
    np.testing.assert_allclose(low, np.linalg.cholesky(positive), atol=1e-11)
    found = Tensor(a).det().item()
    np.testing.assert_allclose(found, np.linalg.det(a), rtol=1e-9)


def _distances_of_qr(a: Any, mode: str) -> tuple[float, float]:
    """How far QR is from the matrix, relative to its norm, and Q^T Q from the identity."""
    q, r = (each.numpy() for each in Tensor(a).qr(mode))
    np.testing.assert_array_equal(np.tril(r, -1), 0)
    scale = max(np.abs(a).max(), np.finfo(a.dtype).tiny)
    distance = float(np.linalg.norm(q @ (r / scale) - a / scale))
    own = np.linalg.norm(q.swapaxes(-1, -2) @ q - np.eye(q.shape[-1]))
    return distance / max(float(np.linalg.norm(a / scale)), 1), float(own)


@pytest.mark.parametrize(
    ("shape", "mode", "rank", "power"),
    [
        ((40, 40), "reduced", 40, 0),
        ((2, 37, 20), "complete", 20, 0),
        ((20, 40), "reduced", 20, 0),
        ((40, 40), "reduced", 3, 30),
        ((40, 40), "reduced", 0, 0),
        ((1, 1), "reduced", 1, 0),
    ],
)
def test_reflections_by_blocks_keep_the_bounds_of_those_one_by_one(
    shape: tuple[int, ...], mode: str, rank: int, power: int
) -> None:
    random = np.random.default_rng(sum(shape))
    left = random.standard_normal((*shape[:-1], rank))
    right = random.standard_normal((*shape[:-2], rank, shape[-1]))
    a = (left @ right * 10.0**power).astype(np.float32)
    distance, own = _distances_of_qr(a, mode)
    unit = 2.0**-24
    assert distance <= shape[-1] * unit
    assert own <= shape[-2] * unit * 4


def test_reflections_of_float64_by_blocks_are_exact_to_float64() -> None:
    a = np.random.default_rng(5).standard_normal((33, 33))
    distance, own = _distances_of_qr(a, "reduced")
    assert distance <= 33 * 2.0**-53
    assert own <= 33 * 2.0**-53 * 4


def test_a_nan_stays_in_its_own_matrix_of_several_blocks() -> None:
    a = np.random.default_rng(6).standard_normal((2, 33, 33)).astype(np.float32)
    a[0, 3, 3] = np.nan
    q, r = (each.numpy() for each in Tensor(a).qr())
    assert np.isnan(q[0]).any()
    assert np.isnan(r[0]).any()
    assert np.isfinite(q[1]).all()
    assert np.isfinite(r[1]).all()


def test_a_later_call_of_the_same_shape_has_results_of_its_own() -> None:
    random = np.random.default_rng(7)
    first, second = (random.standard_normal((40, 40)).astype(np.float32) for _ in range(2))
    q, r = Tensor(first).qr()
    others = Tensor(second).qr()
    np.testing.assert_allclose((others[0] @ others[1]).numpy(), second, atol=1e-4)
    np.testing.assert_allclose((q @ r).numpy(), first, atol=1e-4)


def test_a_zero_on_the_diagonal_leaves_the_rows_before_it_finite() -> None:
    a = np.eye(40, dtype=np.float32)
    a[35, 35] = 0
    found = Tensor(a).solve_triangular(Tensor.ones(40, 1), upper=False).numpy()[:, 0]
    assert np.isinf(found[35])
    assert np.isfinite(found[:35]).all()


def test_columns_of_subnormal_numbers_leave_the_vectors_orthogonal() -> None:
    # Rotations of equal blocks leave columns around 1e-42 in the place of those that are 0.
    a = np.kron(np.eye(3), np.ones((16, 16))).astype(np.float32)
    u, s, v = (each.numpy() for each in Tensor(a).svd())
    np.testing.assert_allclose(u.T @ u, np.eye(48), atol=1e-5)
    np.testing.assert_allclose((u * s) @ v, a, atol=1e-5)


def test_vectors_of_symmetric_matrices_are_orthogonal_to_the_last_bits() -> None:
    a = np.random.default_rng(8).standard_normal((48, 48)).astype(np.float32)
    values, vectors = (each.numpy() for each in Tensor(a).eigh())
    assert np.linalg.norm(vectors.T @ vectors - np.eye(48)) <= 48 * 2.0**-24 * 4
    whole = np.tril(a) + np.tril(a, -1).T
    assert np.linalg.norm(whole @ vectors - vectors * values) <= 48 * 2.0**-24 * np.linalg.norm(a)
