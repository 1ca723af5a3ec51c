"""Every method of tensors, called with what it cannot take: typed errors at the user's line.

The table is made from the class itself, so no method is left out: each parameter in turn gets
things of other kinds, tensors of other shapes, and numbers out of range.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, Variable, dtypes
from tilework.base.errors import DTypeError, InternalError, ShapeError, TileworkError, UserError
from tilework.tensor.wrong_calls import wrong_argument

#: Methods that are not called here, each with the reason.
LEFT_OUT = {
    "from_blob": "takes an address, which is trusted",
    "from_url": "reads from the network",
    "manual_seed": "changes what other tests draw",
    "custom_function": "takes functions",
    "checkpoint": "calls what it is given",
    "sequential": "calls what it is given",
}

X = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
#: What parameters of these names get while another one is wrong.
GIVEN: dict[str, Any] = {
    "axis": 0, "dim": 0, "dim0": 0, "axis0": 0, "start_dim": 0, "dim1": 1, "axis1": 1,
    "end_dim": 1, "axes": (0, 1), "dims": (0, 1), "order": (0, 1), "shape": (4, 3),
    "index": Tensor([0, 1]), "indices": Tensor([0, 1]), "mask": Tensor(X > 0),
    "condition": Tensor(X > 0), "dtype": dtypes.float32, "steps": 4, "length": 2,
}  # fmt: skip
TENSORS = frozenset(
    ("other", "x", "y", "end", "weight", "target", "src", "source", "value", "values", "first",
     "second")
)  # fmt: skip
WRONG: tuple[Any, ...] = (
    object(), "text", Tensor([1.0] * 7), -99, 1.5, [1, [2]], Tensor(np.ones((2, 2, 2), np.int32)),
)  # fmt: skip


#: Methods that look at their other arguments first, which do not fit each other in these calls.
ASKED_LATER = {
    *((name, "src") for name in ("scatter_", "scatter_add", "scatter_add_", "scatter_reduce_")),
    *(("scatter_reduce_", key) for key in ("dim", "index")),
}


def methods() -> list[str]:
    names = []
    for name in dir(Tensor):
        item = inspect.getattr_static(Tensor, name)
        plain = item.__func__ if isinstance(item, classmethod | staticmethod) else item
        if not name.startswith("_") and inspect.isfunction(plain) and name not in LEFT_OUT:
            names.append(name)
    return names


def parameters_of(name: str) -> list[inspect.Parameter]:
    found = inspect.signature(getattr(Tensor, name)).parameters.values()
    return [each for each in found if each.name not in ("self", "cls")]


def calls(name: str) -> list[tuple[list[Any], dict[str, Any]]]:
    """Arguments of which one is wrong."""
    parameters = parameters_of(name)
    found = []
    for wrong in parameters:
        for value in WRONG:
            args: list[Any] = []
            named: dict[str, Any] = {}
            for each in parameters:
                needed = each.default is each.empty and each.kind is not each.VAR_KEYWORD
                given = Tensor(X) if each.name in TENSORS else GIVEN.get(each.name, 1)
                own = value if each is wrong else given
                if each.kind is each.VAR_KEYWORD:
                    continue
                if each.kind is each.VAR_POSITIONAL:
                    args += [own] if each is wrong else []
                elif each.kind is each.KEYWORD_ONLY or not needed:
                    named |= {each.name: own} if each is wrong or needed else {}
                else:
                    args.append(own)
            found.append((args, named))
    return found


def is_about_the_number_of_arguments(error: TypeError) -> bool:
    return "argument" in str(error) and ("missing" in str(error) or "positional" in str(error))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", methods())
def test_a_method_refuses_what_it_cannot_take_by_a_typed_error(name: str) -> None:
    is_static = isinstance(inspect.getattr_static(Tensor, name), classmethod | staticmethod)
    for args, named in calls(name):
        owner = Tensor if is_static else Tensor(X)
        error = refusal(getattr(owner, name), args, named)
        if isinstance(error, TileworkError):
            check(error)
        else:
            assert error is None or is_about_the_number_of_arguments(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", methods())
def test_a_method_says_which_argument_it_cannot_take(name: str) -> None:
    is_static = isinstance(inspect.getattr_static(Tensor, name), classmethod | staticmethod)
    parameters = parameters_of(name)
    for position, wrong in enumerate(parameters):
        is_needed = wrong.default is wrong.empty and wrong.kind is not wrong.VAR_KEYWORD
        if not is_needed or (name, wrong.name) in ASKED_LATER:
            continue
        args, named = calls(name)[position * len(WRONG)]
        error = refusal(getattr(Tensor if is_static else Tensor(X), name), args, named)
        assert error is not None, wrong.name
        assert any(word in str(error) for word in (name, wrong.name, "object")), str(error)


def refusal(
    method: Any, args: list[Any], named: dict[str, Any]
) -> TypeError | TileworkError | None:
    try:
        method(*args, **named)
    except (TypeError, TileworkError) as error:
        return error
    return None


def check(error: TileworkError) -> None:
    """The words of an error: what, got, and what to do; and the user's line."""
    assert not isinstance(error, InternalError)
    assert ": " in error.message or error.message[0].islower()
    assert error.got is not None
    assert error.expected is not None or error.try_ is not None
    assert traceback.extract_tb(error.__traceback__)[-1].filename == __file__


def test_the_wrong_argument_is_named_with_what_would_fit() -> None:
    with pytest.raises(DTypeError) as caught:
        Tensor(X).gather(0, "rows")  # type: ignore[arg-type]
    error = caught.value
    assert error.message == "gather: the argument index is of the wrong kind"
    assert error.got == "'rows' of type str"
    assert error.expected == "a tensor"
    assert error.try_ == "help(Tensor.gather) says what it takes"


def test_a_fault_with_right_arguments_is_not_blamed_on_them() -> None:
    def broken(x: int) -> int:
        raise ValueError(x)

    assert wrong_argument(broken, (1,), {}) is None


def test_the_cause_is_shown_where_frames_are_wanted() -> None:
    with pytest.raises(ShapeError) as caught:
        Tensor(X).size(5)
    assert caught.value.got == "shape (3, 4)"


def test_methods_that_are_left_out_exist() -> None:
    assert [name for name in LEFT_OUT if not hasattr(Tensor, name)] == []


#: Calls that escaped as Python's own errors, or as wrong answers, once.
ONCE_MISSED: dict[str, tuple[Callable[[], object], type[TileworkError], str]] = {
    "a list of tensors and others beside a tensor": (
        lambda: Tensor(X).hstack(Tensor(X), [Tensor(X)]), DTypeError, "hstack"),
    "an empty list beside tensors": (lambda: Tensor(X) * [Tensor(1.0), []], ShapeError, "empty"),
    "arrays of other shapes in one list": (
        lambda: Tensor(X) * [np.ones(2), np.ones(3)], ShapeError, "nested lists"),
    "an array for an axis": (lambda: Tensor(X).mean(np.ones(2)), DTypeError, "axis"),  # type: ignore[arg-type]
    "an axis of a scalar": (lambda: Tensor(1.0).unbind(0), ShapeError, "too few axes"),
    "scalars that are joined": (lambda: Tensor(1.0).cat(Tensor(2.0)), ShapeError, "scalars"),
    "three halves": (lambda: Tensor([1.0, 2.0, 3.0]).glu(), ShapeError, "two halves"),
    "one axis to turn around": (lambda: Tensor(X).rot90(1, (0,)), ShapeError, "two axes"),
    "no parts": (lambda: Tensor(X).hsplit(0), ShapeError, "not equal"),
    "a fraction of times": (
        lambda: Tensor(X).repeat_interleave(Tensor(1.5)), ShapeError, "so many times"),
    "fewer than no times": (
        lambda: Tensor(X).repeat_interleave([-1, 1, 1], 0), ShapeError, "so many times"),
    "repeat_interleave to another size": (
        lambda: Tensor(X).repeat_interleave(2, 0, output_size=5), ShapeError, "another size"),
    "a scale of nothing": (lambda: Tensor(X).fake_quantize(0.0), UserError, "not positive"),
    "a factor beyond 64 bits": (
        lambda: Tensor([1]).sub_([], alpha=-(2**70)), DTypeError, "cannot be used here"),
    "a block of no bytes": (
        lambda: Tensor(b"abc").keccak((0, 1)), UserError, "no such size"),
    "a tensor for a count": (
        lambda: Tensor(X).topk(Tensor(1)), DTypeError, "k is not an integer"),  # type: ignore[arg-type]
    "fewer places than axes": (
        lambda: Tensor(X).movedim((0, 1), (1,)), ShapeError, "differ in number"),
    "elements at no distance": (lambda: Tensor.fftfreq(4, 0.0), UserError, "distance"),
    "several elements as a number": (lambda: float(Tensor(X)), ShapeError, "exactly one"),
    "a format of several elements": (lambda: format(Tensor(X), "f"), ShapeError, "exactly one"),
    "no tensors": (lambda: Tensor.stack([]), ShapeError, "nothing to join"),  # type: ignore[type-var]
    "a condition in the second place": (
        lambda: Tensor(X).where(Tensor(X) > 1, 0), DTypeError, "the condition comes first"),
    "a factor with a fraction for integers": (
        lambda: Tensor([1]).index_add(0, Tensor([0]), Tensor([1]), alpha=0.5), DTypeError,
        "does not fit"),
}  # fmt: skip


@pytest.mark.parametrize("name", ONCE_MISSED)
def test_what_escaped_once_is_refused_by_a_typed_error(name: str) -> None:
    call, kind, words = ONCE_MISSED[name]
    with pytest.raises(kind, match=words) as caught:
        call()
    check(caught.value)


def test_a_variable_is_not_bound_to_text() -> None:
    with pytest.raises(DTypeError, match="no integer"):
        Variable("n", 1, 3).bind("x")  # type: ignore[arg-type]


#: Tensors whose bytes 63 bits do not count: offsets and sizes would wrap.
TOO_LARGE: dict[str, Callable[[], Tensor]] = {
    "of one axis": lambda: Tensor.ones(10**30),
    "of two": lambda: Tensor.ones(2**62, 2**62).sum(),
    "with bytes that wrap to none": lambda: Tensor.ones(2**62),
    "without elements": lambda: Tensor.zeros(2**70, 0),
    "grown": lambda: Tensor([1.0]).expand(2**62),
    "repeated": lambda: Tensor([1.0]).repeat(10**30),
    "with a border": lambda: Tensor([1.0]).pad((0, 10**30)),
    "of positions": lambda: Tensor(X).nonzero_static(size=2**62),
    "of columns": lambda: Tensor([1]).one_hot(2**62),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_tensor_whose_bytes_63_bits_do_not_count_is_refused(name: str) -> None:
    with pytest.raises(ShapeError, match="63 bits"):
        TOO_LARGE[name]()


def test_what_is_no_number_is_not_in_a_tensor() -> None:
    assert "text" not in Tensor(X)
    assert 3.0 in Tensor(X)


def test_a_float_that_numpy_lacks_is_an_array_without_axes_too() -> None:
    found = Tensor(1.5).cast(dtypes.bfloat16).numpy()
    assert isinstance(found, np.ndarray)
    assert np.from_dlpack(Tensor(1.5).cast(dtypes.bfloat16)) == 1.5


def test_a_negative_factor_of_bytes_wraps_as_their_sum_does() -> None:
    x = Tensor([1, 2], dtype=dtypes.uint8)
    one = Tensor([1], dtype=dtypes.uint8)
    assert x.index_add(0, Tensor([0]), one, alpha=-2).tolist() == [255, 2]


def test_covariances_weighed_in_a_wider_float_are_of_that() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 5.0]]).cast(dtypes.float16)
    assert x.cov(aweights=Tensor([1.0, 2.0])).dtype is dtypes.float32
    assert x.cov(fweights=Tensor([1, 2])).dtype is dtypes.float16
