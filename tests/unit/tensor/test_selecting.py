"""Indexing by tensors against PyTorch and NumPy: reading, writing, counting, searching."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, dtypes
from tilework.base.errors import DTypeError, IndexingError, ShapeError, TileworkError, UserError
from tilework.tensor import host


def same(got: Any, want: Any) -> None:
    got = got.numpy() if isinstance(got, Tensor) else np.asarray(got)
    want = want.numpy() if isinstance(want, torch.Tensor) else np.asarray(want)
    assert got.shape == tuple(want.shape)
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(got, want)


# --- x[index] --------------------------------------------------------------------------------


def random_slice(draw: random.Random, size: int) -> slice:
    start, stop = [draw.choice([None, draw.randint(-size - 2, size + 2)]) for _ in range(2)]
    return slice(start, stop, draw.choice([None, 1, 2, 3]))


def random_index(draw: random.Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Numbers, slices, None, one ... and index arrays that broadcast against each other."""
    common = draw.choice([(), (3,), (2, 1), (2, 3), (1,)])
    items: list[Any] = []
    dots_at = draw.choice([None, None, draw.randint(0, len(shape))])
    for axis, size in enumerate(shape):
        if axis == dots_at:
            items.append(Ellipsis)
            if draw.random() < 0.5:
                continue
        if draw.random() < 0.15:
            items.append(None)
        kind = draw.random()
        if kind < 0.35:
            items.append(random_slice(draw, size))
        elif kind < 0.55:
            items.append(draw.randrange(-size, size))
        elif kind < 0.9:
            numbers = np.random.default_rng(draw.randrange(10**6))
            chosen = common if draw.random() < 0.7 else ()
            items.append(np.array(numbers.integers(-size, size, chosen)))
        else:
            items.append(slice(None))
    return tuple(items)


def with_arrays_as(kind: Any, index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(kind(item) if isinstance(item, np.ndarray) else item for item in index)


@pytest.mark.parametrize("seed", range(40))
def test_an_index_reads_and_writes_what_it_does_in_pytorch(seed: int) -> None:
    draw = random.Random(seed)
    shape = tuple(draw.randint(1, 4) for _ in range(draw.randint(1, 4)))
    values = np.arange(np.prod(shape)).reshape(shape).astype(np.float32)
    index = random_index(draw, shape)
    want = torch.tensor(values)[with_arrays_as(torch.tensor, index)]
    same(Tensor(values)[with_arrays_as(Tensor, index)], want)
    written = np.random.default_rng(seed).random(want.shape).astype(np.float32)
    ours, theirs = Tensor(values).clone(), torch.tensor(values)
    ours[with_arrays_as(Tensor, index)] = Tensor(written)
    theirs[with_arrays_as(torch.tensor, index)] = torch.tensor(written)
    same(ours, theirs)


@pytest.mark.parametrize(
    "index",
    [
        (slice(None, None, -1),), (slice(3, None, -2), slice(None, 0, -1)), (slice(-1, -9, -3),),
        (1, slice(None, None, -1)), (slice(0, 0, -1),), (..., slice(None, None, -2)),
        ([2, 0], slice(None, None, -1)), (None, slice(2, 0, -1), None),
    ],
)  # fmt: skip
def test_steps_backwards_read_and_write_as_in_numpy(index: Any) -> None:
    values = np.arange(20).reshape(4, 5)
    tensor = Tensor(values).clone()
    same(tensor[index], values[index])
    changed = values.copy()
    changed[index] = -1
    tensor[index] = -1
    same(tensor, changed)


def test_a_mask_of_leading_axes_reads_rows() -> None:
    values = np.arange(24).reshape(2, 3, 4)
    mask = values[..., 0] % 8 == 0
    same(Tensor(values)[Tensor(mask)], values[mask])
    same(Tensor(values)[mask], values[mask])


@pytest.mark.parametrize("value", [7, [1, 2, 3], np.arange(12).reshape(4, 3)])
def test_a_mask_writes_numbers_rows_and_one_row_each(value: Any) -> None:
    mask = np.array([True, False, True, True, False, True])
    values = np.zeros((6, 3), np.int64)
    tensor = Tensor(values).clone()
    tensor[Tensor(mask)] = value if isinstance(value, int) else Tensor(value)
    values[mask] = value
    same(tensor, values)


def test_writing_a_number_by_a_mask_reads_nothing_on_the_host() -> None:
    from tilework import jit

    @jit
    def clean(x: Tensor) -> Tensor:
        y = x.clone()
        y[y.isnan()] = 0.0
        return y.realize()

    for value in (1.0, 2.0, 3.0):
        same(clean(Tensor([value, float("nan")]).realize()), [value, 0.0])
    assert clean.num_captures == 1


def test_a_mask_that_does_not_fit_is_refused_with_both_sizes() -> None:
    with pytest.raises(IndexingError, match="mask doesn't fit") as caught:
        Tensor.zeros(3, 4)[Tensor([True, False])]
    assert "2" in str(caught.value.got)
    assert "3" in str(caught.value.expected)


# --- index_* ---------------------------------------------------------------------------------

BASE = np.random.default_rng(0).normal(0, 1, (3, 4, 5)).astype(np.float32)
PLACES = np.array([2, 0, 2], np.int64)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["index_add", "index_copy"])
def test_slices_are_written_and_added_as_in_pytorch(name: str, dim: int) -> None:
    shape = list(BASE.shape)
    shape[dim] = 3
    source = np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)
    places = PLACES if name == "index_add" else np.array([2, 0, 1], np.int64)
    ours = [Tensor(BASE).clone(), Tensor(places), Tensor(source)]
    theirs = [torch.tensor(BASE), torch.tensor(places), torch.tensor(source)]
    options = {"alpha": 2} if name == "index_add" else {}
    want = getattr(theirs[0], name)(dim, *theirs[1:], **options)
    same(getattr(ours[0], name)(dim, *ours[1:], **options), want)
    assert getattr(ours[0], f"{name}_")(dim, *ours[1:], **options) is ours[0]
    same(ours[0], want)


def test_the_gradients_of_index_add_are_those_of_pytorch() -> None:
    source = np.random.default_rng(1).normal(0, 1, (3, 4, 5)).astype(np.float32)
    x, y = Tensor(BASE, requires_grad=True), Tensor(source, requires_grad=True)
    (x.index_add(0, Tensor(PLACES), y) ** 2).sum().backward()
    a, b = torch.tensor(BASE, requires_grad=True), torch.tensor(source, requires_grad=True)
    (a.index_add(0, torch.tensor(PLACES), b) ** 2).sum().backward()  # type: ignore[no-untyped-call]
    same(x.grad, a.grad)
    same(y.grad, b.grad)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_slices_are_folded_as_in_pytorch(reduce: str, include_self: bool) -> None:
    source = BASE[:, :3]
    options: Any = {"include_self": include_self}
    got = Tensor(BASE).index_reduce(1, Tensor(PLACES), Tensor(source), reduce, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says that it may still change
        want = torch.tensor(BASE).index_reduce(
            1, torch.tensor(PLACES), torch.tensor(source), reduce, **options
        )
    same(got, want)


def test_index_fill_writes_a_number_into_slices() -> None:
    want = torch.tensor(BASE).index_fill(2, torch.tensor([0, 4]), 9.0)
    same(Tensor(BASE).index_fill(2, Tensor([0, 4]), 9.0), want)


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_writes_where_an_index_reads(accumulate: bool) -> None:
    rows, columns = np.array([0, 2, 0]), np.array([1, 1, 3])
    values = np.array([[10.0], [20.0], [30.0]], np.float32)
    got = Tensor(BASE).index_put((Tensor(rows), Tensor(columns)), Tensor(values), accumulate)
    want = torch.tensor(BASE).index_put(
        (torch.tensor(rows), torch.tensor(columns)), torch.tensor(values), accumulate
    )
    same(got, want)


def test_index_put_adds_to_a_place_as_often_as_it_is_named() -> None:
    got = Tensor.zeros(3).index_put((Tensor([1, 1, 1, 0]),), Tensor([1.0, 2.0, 4.0, 8.0]), True)
    assert got.tolist() == [8.0, 7.0, 0.0]


def test_index_put_takes_axes_that_stay_whole() -> None:
    got = Tensor(BASE).index_put((Tensor([0, 1]), None, Tensor([4, 4])), Tensor(0.0))
    want = torch.tensor(BASE)
    want[torch.tensor([0, 1]), :, torch.tensor([4, 4])] = 0.0
    same(got, want)


def test_take_and_put_count_through_the_whole_tensor() -> None:
    places = np.array([[0, -1], [7, 7]])
    same(Tensor(BASE).take(Tensor(places)), torch.tensor(BASE).take(torch.tensor(places)))
    values = np.array([[1.0, 2.0], [4.0, 8.0]], np.float32)
    got = Tensor(BASE).put(Tensor(places), Tensor(values), accumulate=True)
    want = torch.tensor(BASE).put(torch.tensor(places), torch.tensor(values), accumulate=True)
    same(got, want)


def test_masked_scatter_writes_one_element_after_another() -> None:
    mask = BASE > 0
    source = np.arange(BASE.size, dtype=np.float32)
    got = Tensor(BASE).masked_scatter(Tensor(mask), Tensor(source))
    same(got, torch.tensor(BASE).masked_scatter(torch.tensor(mask), torch.tensor(source)))


def test_writes_in_place_are_seen_through_views() -> None:
    x = Tensor.zeros(2, 3).clone()
    view = x[1]
    x.scatter_(1, Tensor([[0], [2]]), 5.0)
    assert view.tolist() == [0.0, 0.0, 5.0]
    view.fill_(7.0)
    assert x.tolist() == [[5.0, 0.0, 0.0], [7.0, 7.0, 7.0]]
    x[0].zero_()
    x.masked_fill_(x > 6, 1.0)
    assert x.tolist() == [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    x.copy_(Tensor([3, 4, 5]))
    assert x.dtype is dtypes.float32
    assert view.tolist() == [3.0, 4.0, 5.0]


@pytest.mark.parametrize("size", [1, 3, 6, 9])
def test_nonzero_of_a_given_size_is_cut_or_filled(size: int) -> None:
    values = np.array([[1, 0, 2], [0, 3, 0]])
    found = np.argwhere(values)
    want = np.full((size, 2), -1)
    want[: min(size, len(found))] = found[:size]
    same(Tensor(values).nonzero(size=size, fill_value=-1), want)


def test_masked_select_of_a_given_size_is_cut_or_filled() -> None:
    x, mask = Tensor([1.0, 2.0, 3.0]), Tensor([True, False, True])
    assert x.masked_select(mask).tolist() == [1.0, 3.0]
    assert x.masked_select(mask, size=1).tolist() == [1.0]
    assert x.masked_select(mask, size=4, fill_value=9).tolist() == [1.0, 3.0, 9.0, 9.0]


def test_nothing_is_selected_of_nothing() -> None:
    x = Tensor.zeros(0)
    assert x.masked_select(x > 0, size=2).tolist() == [0.0, 0.0]
    assert x.nonzero().shape == (0, 1)


# --- searching and counting ------------------------------------------------------------------


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 7, 8, 33])
def test_searchsorted_finds_the_places_of_numpy(length: int, right: bool) -> None:
    numbers = np.random.default_rng(length)
    kept = np.sort(numbers.integers(0, 9, length).astype(np.float32))
    wanted = np.array([-1, 0, 3, 4, 8, 9, np.nan, np.inf, -np.inf], np.float32)
    want = np.searchsorted(kept, wanted, side="right" if right else "left")
    same(Tensor(kept).searchsorted(Tensor(wanted), right=right), want)


def test_searchsorted_takes_rows_and_a_sorter() -> None:
    kept = np.random.default_rng(0).permutation(12).reshape(3, 4).astype(np.int32)
    order = np.argsort(kept, axis=1)
    wanted = np.array([[0, 20], [5, 6], [11, 1]], np.int32)
    want = torch.searchsorted(
        torch.tensor(kept), torch.tensor(wanted), sorter=torch.tensor(order), side="right"
    )
    got = Tensor(kept).searchsorted(Tensor(wanted), sorter=Tensor(order), side="right")
    same(got, want)


def test_bucketize_gives_the_intervals_of_pytorch() -> None:
    values, ends = np.array([[0.5, 1.0], [2.0, 9.0]], np.float32), np.array([1.0, 2, 3], np.float32)
    for right in (False, True):
        want = torch.bucketize(torch.tensor(values), torch.tensor(ends), right=right)
        same(Tensor(values).bucketize(Tensor(ends), right=right), want)


def test_bincount_weighs_elements() -> None:
    places, weights = np.array([0, 2, 2, 5]), np.array([0.5, 1.0, 2.0, 4.0], np.float32)
    want = torch.bincount(torch.tensor(places), torch.tensor(weights), minlength=8)
    same(Tensor(places).bincount(Tensor(weights), minlength=8), want)
    assert Tensor([], dtype=dtypes.int32).bincount(minlength=2).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("bins", "low", "high"), [(4, 0, 0), (7, -1, 1), (3, 0.5, 0.5), (100, -3, 3)]
)
def test_histc_counts_as_pytorch_does(bins: int, low: float, high: float) -> None:
    want = torch.histc(torch.tensor(BASE), bins, low, high)
    same(Tensor(BASE).histc(bins, low, high), want)


def test_the_ends_of_a_histogram_belong_to_it() -> None:
    assert Tensor([1.0, 2.0, 3.0, 3.1]).histc(2, 1, 3).tolist() == [1.0, 2.0]


def test_unique_gives_elements_places_and_counts_of_pytorch() -> None:
    values = np.random.default_rng(0).integers(-3, 4, (4, 6))
    got = Tensor(values).unique(return_inverse=True, return_counts=True)
    want = torch.unique(torch.tensor(values), return_inverse=True, return_counts=True)
    for ours, theirs in zip(got, want, strict=True):
        same(ours, theirs)


@pytest.mark.parametrize("dim", [0, 1])
def test_unique_slices_are_those_of_pytorch(dim: int) -> None:
    values = np.random.default_rng(1).integers(0, 2, (6, 3, 2) if dim == 0 else (2, 7))
    got = Tensor(values).unique(return_inverse=True, return_counts=True, dim=dim)
    want = torch.unique(torch.tensor(values), return_inverse=True, return_counts=True, dim=dim)
    for ours, theirs in zip(got, want, strict=True):
        same(ours, theirs)


def test_unique_consecutive_keeps_the_order() -> None:
    values = np.array([1, 1, 2, 1, 1, 1, 3])
    got = Tensor(values).unique_consecutive(return_inverse=True, return_counts=True)
    want = torch.unique_consecutive(torch.tensor(values), return_inverse=True, return_counts=True)
    for ours, theirs in zip(got, want, strict=True):
        same(ours, theirs)


def test_unique_of_nothing_is_nothing() -> None:
    values, counts = Tensor([], dtype=dtypes.int32).unique(return_counts=True)
    assert values.shape == counts.shape == (0,)


def test_each_nan_is_one_of_its_own() -> None:
    assert Tensor([float("nan"), 1.0, float("nan")]).unique().shape == (3,)


# --- windows, turns, scans -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ((2, 3), {}),
        ((2, 2), {"stride": 2}),
        ((3, 3), {"padding": 1}),
        ((2, 2), {"dilation": (2, 1), "stride": (1, 2), "padding": (1, 0)}),
    ],
)
def test_fold_adds_windows_up_as_pytorch_does(kernel: Any, options: Any) -> None:
    picture = torch.tensor(np.random.default_rng(0).normal(0, 1, (2, 3, 6, 8)).astype(np.float32))
    windows = torch.nn.functional.unfold(picture, kernel, **options).requires_grad_()
    want = torch.nn.functional.fold(windows, (6, 8), kernel, **options)
    ours = Tensor(windows.detach().numpy(), requires_grad=True)
    got = ours.fold((6, 8), kernel, **options)
    same(got, want.detach())
    (want**2).sum().backward()  # type: ignore[no-untyped-call]
    (got * got).sum().backward()
    same(ours.grad, windows.grad)


@pytest.mark.parametrize("k", [-1, 0, 1, 2, 3, 5])
def test_turns_are_those_of_numpy(k: int) -> None:
    same(Tensor(BASE).rot90(k, (0, 2)), np.rot90(BASE, k, (0, 2)))
    same(Tensor(BASE).rot90(k, (2, 1)), np.rot90(BASE, k, (2, 1)))


@pytest.mark.parametrize("length", [1, 2, 3, 17, 100])
def test_running_logarithms_of_sums_are_those_of_pytorch(length: int) -> None:
    values = np.random.default_rng(length).normal(0, 30, (2, length)).astype(np.float32)
    ours, theirs = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    same(ours.logcumsumexp(1), theirs.logcumsumexp(1).detach())
    ours.logcumsumexp(1)[:, -1].sum().backward()
    theirs.logcumsumexp(1)[:, -1].sum().backward()  # type: ignore[no-untyped-call]
    same(ours.grad, theirs.grad)


def test_a_running_logarithm_begins_at_minus_infinity() -> None:
    values = np.array([-np.inf, -np.inf, 1.0, -np.inf, 2.0], np.float32)
    same(Tensor(values).logcumsumexp(0), torch.tensor(values).logcumsumexp(0))


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: x.index_add(0, Tensor([0.5]), x), IndexingError, "vector of integers"),
        (lambda x: x.index_copy(0, Tensor([0]), x), ShapeError, "slices don't fit"),
        (lambda x: x.index_select(5, Tensor([0])), ShapeError, "axis 5 is out of range"),
        (lambda x: x.index_put((None,), x), IndexingError, "no index tensor"),
        (lambda x: x.take(Tensor([1.0])), DTypeError, "must hold integers"),
        (lambda x: x.gather(0, Tensor([0])), ShapeError, "index doesn't fit"),
        (lambda x: x.scatter(0, Tensor([[0]]), 1.0, "max"), UserError, "unknown reduce"),
        (lambda x: x.fold((4, 4), 3), ShapeError, "windows don't fit"),
        (lambda x: x.histc(0), UserError, "no interval"),
        (lambda x: x.searchsorted(x[:1]), ShapeError, "leading axes differ"),
        (lambda x: x[0, 0, 0], IndexingError, "too many indices"),
        (lambda x: x[..., ...], IndexingError, "more than one"),
        (lambda x: x[5], IndexingError, "5 is out of range"),
        (lambda x: x[Tensor([0.5])], IndexingError, "integers or bool"),
        (lambda x: x[[0, 7]], IndexingError, "7 is out of range"),
        (lambda x: x[::0], IndexingError, "step of a slice is 0"),
        (lambda x: x["a"], IndexingError, "not an index"),
        (lambda x: x.rot90(1, (0, 0)), ShapeError, "two axes are one"),
    ],
)
def test_a_wrong_call_is_refused_in_words(
    call: Any, error: type[TileworkError], words: str
) -> None:
    with pytest.raises(error, match=words):
        call(Tensor.zeros(2, 3))


def test_positions_of_a_mask_are_never_numbers_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    mask, x = np.arange(24).reshape(4, 6) % 5 == 0, np.arange(24.0).reshape(4, 6)
    tensor, chosen = Tensor(x), Tensor(mask)
    monkeypatch.setattr(host, "pack", None)
    assert np.array_equal(chosen.nonzero().numpy(), np.argwhere(mask))
    assert np.array_equal(tensor[chosen].numpy(), x[mask])
    assert np.array_equal(tensor.masked_select(chosen).numpy(), x[mask])
