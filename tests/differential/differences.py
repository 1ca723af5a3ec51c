"""Where tilework answers otherwise than PyTorch on purpose, and what the answer must then be.

A difference excuses no other fault: its answer is compared with what PyTorch gives for the changed
question, or its error with the words that it must have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import scipy.special
import torch
from tests.differential.judge import Comparison, Outcome, Sample, judge, mapped

Function = Callable[..., Any]


@dataclass(frozen=True)
class Difference:
    """One reason for another answer.

    Attributes:
        reason: why, for the page.
        applies: which samples it may concern.
        instead: makes what is right here of PyTorch's function; None where `fault` is what is seen.
        fault: a pattern of the only fault that is excused.
    """

    reason: str
    applies: Callable[[Sample], bool] = lambda one: True
    instead: Callable[[Function], Function] | None = None
    fault: str = ""

    def explains(self, how: Comparison, sample: Sample, outcome: Outcome) -> bool:
        """Whether a failed sample is what this difference makes of it."""
        if not self.applies(sample):
            return False
        if self.instead is None:
            return re.search(self.fault, outcome.reason) is not None
        return judge(replace(how, theirs=self.instead(how.theirs)), sample).state == "passed"


# --- what the right answer is ------------------------------------------------------------------


def _cast(kinds: tuple[torch.dtype, ...], target: torch.dtype) -> Callable[[Any], Any]:
    """A change of all tensors of these dtypes, in lists and dictionaries too."""
    return lambda value: mapped(value, lambda x: x.to(target) if x.dtype in kinds else x)


_WORDS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


def _on(
    before: Callable[[Any], Any], after: Callable[[Any], Any] = lambda x: x
) -> Callable[[Function], Function]:
    """PyTorch's function of changed operands, with changed results."""

    def change(theirs: Function) -> Function:
        return lambda *args, **kwargs: after(theirs(*before(args), **before(kwargs)))

    return change


def _in_single(theirs: Function) -> Function:
    """PyTorch's function computed in float32 also where float64 is asked for."""

    def call(first: torch.Tensor, *rest: Any, **options: Any) -> Any:
        single = _cast((torch.float64,), torch.float32)
        return theirs(single(first), *single(rest), **options).to(first.dtype)

    return call


_IN_FLOATS = _on(_cast(_WORDS, torch.float64), _cast((torch.float64,), torch.float32))
_IN_INTEGERS = _on(_cast((torch.bool,), torch.int32))
_IN_LONG = _on(_cast(_WORDS, torch.int64))


def _as(target: torch.dtype) -> Callable[[Function], Function]:
    """PyTorch's results in another dtype of integers."""
    return _on(lambda x: x, _cast((*_WORDS, torch.float64), target))


def _wide_and_back(theirs: Function) -> Function:
    """Computed without wrapping, then in the dtype that PyTorch gives."""
    return lambda *args, **kwargs: _IN_LONG(theirs)(*args, **kwargs).to(
        theirs(*args, **kwargs).dtype
    )


def _truncated(theirs: Function) -> Function:
    """Computed in float64, and cut to the integers that are asked for."""

    def call(*args: Any, **kwargs: Any) -> Any:
        asked = kwargs["dtype"]
        return theirs(*args, **(kwargs | {"dtype": torch.float64})).trunc().to(asked)

    return call


def _infinite_at_poles(theirs: Function) -> Function:
    """PyTorch's polygamma of integers; the second power at a pole is beyond all numbers."""

    def call(x: torch.Tensor, order: int) -> Any:
        return torch.where((x <= 0) & (order == 1), torch.inf, theirs(x, order))

    return call


# --- which samples -----------------------------------------------------------------------------


def _is_bytes(one: Sample) -> bool:
    return one.input.dtype is torch.uint8


def _is_bool(one: Sample) -> bool:
    return isinstance(one.input, torch.Tensor) and one.input.dtype is torch.bool


def _is_words(one: Sample) -> bool:
    return isinstance(one.input, torch.Tensor) and one.input.dtype in _WORDS


def _makes_words(one: Sample) -> bool:
    return one.kwargs.get("dtype") in _WORDS


def _keeps_its_shape(one: Sample) -> bool:
    size = one.args[0] if isinstance(one.args[0], tuple | list) else one.args
    return tuple(size) == tuple(one.input.shape)


def _numbers(one: Sample) -> list[Any]:
    return [x for x in (one.input, *one.args, *one.kwargs.values()) if isinstance(x, int | float)]


def _has_fraction(one: Sample) -> bool:
    return any(float(number) % 1 for number in _numbers(one))


_CUT = "a fraction is not cut to an integer in silence"
_MEAN = "a mean of integers is a float"
_REFUSED = "a number that does not fit is refused"

_in_floats = Difference(_CUT, lambda one: _is_words(one) and _has_fraction(one), _IN_FLOATS)
_mean = Difference(_MEAN, _is_words, _IN_FLOATS)
_weighted = Difference("weighted means of integers are floats", _is_words, _IN_FLOATS)
_no_fit = Difference(_REFUSED, fault="DTypeError: .*the number does not fit")
_unsigned = Difference(
    "integers without a sign add up to such, as in NumPy", _is_bytes, _as(torch.uint64)
)
_wrapped = Difference("computed in floats, where PyTorch's bytes wrap", _is_words, _IN_FLOATS)
_same_shape = Difference(
    "a sum over no axis is the tensor itself",
    _keeps_its_shape,
    lambda theirs: lambda x, *shape: x,
)
_widened = Difference(
    "a Python number that does not fit the dtype widens it",
    lambda one: one.kwargs.get("alpha", 0) < 0 and _is_bytes(one),
    _IN_LONG,
)
_ends = Difference("the ends are not cut to integers first", _makes_words, _truncated)
_steps = Difference(
    "rounded toward zero from float64, where PyTorch's steps are float32", _makes_words, _truncated
)


def _bessel(exact: Function) -> Difference:
    """PyTorch's float64 has the coefficients of a fit that is right to seven digits."""
    return Difference(
        "right to the last digits, where PyTorch's float64 is to seven",
        lambda one: one.input.dtype is torch.float64,
        lambda theirs: lambda x: torch.as_tensor(exact(x.numpy())),
    )


#: The differences of each operator.
DIFFERENCES: dict[str, tuple[Difference, ...]] = {
    **dict.fromkeys(("addbmm", "baddbmm", "addmv"), (_in_floats,)),
    **dict.fromkeys(("cumsum", "cumprod", "sum", "prod", "nansum"), (_unsigned,)),
    **dict.fromkeys((f"nn.functional.avg_pool{count}d" for count in (1, 2, 3)), (_mean,)),
    **dict.fromkeys(
        ("nn.functional.interpolate.bilinear", "nn.functional.interpolate.bicubic",
         "nn.functional.upsample_bilinear"), (_weighted,)),
    **dict.fromkeys(("add", "sub", "rsub"), (_widened,)),
    **dict.fromkeys(("linspace", "linspace.tensor_overload"), (_ends,)),
    **dict.fromkeys(("logspace", "logspace.tensor_overload"), (_steps,)),
    **dict.fromkeys(("full", "full_like"), (_no_fit,)),
    "sum_to_size": (_same_shape, _unsigned),
    "nn.functional.local_response_norm": (_mean,),
    "square": (Difference("a product of bool is bool", _is_bool, _as(torch.bool)),),
    "addr": (Difference("Python numbers turn bool into integers", _is_bool, _IN_INTEGERS),),
    "bincount": (Difference("weights that are integers add up to integers",
                            lambda one: "weights" in one.kwargs, _as(torch.int64)),),
    **dict.fromkeys(
        ("nn.functional.triplet_margin_loss", "nn.functional.triplet_margin_with_distance_loss"),
        (_wrapped,)),
    **dict.fromkeys(
        ("trapz", "trapezoid", "cumulative_trapezoid", "nn.functional.pairwise_distance"),
        (_wrapped,)),
    **dict.fromkeys(("trace", "linalg.vander"), (_unsigned,)),
    **dict.fromkeys(("all", "any"), (Difference("truth is bool, as in NumPy", _is_bytes,
                                                _as(torch.bool)),)),
    **dict.fromkeys(
        (*(f"polygamma.polygamma_n_{order}" for order in range(5)),
         "special.polygamma.special_polygamma_n_0"),
        (Difference("infinite at a pole, where PyTorch has the rounding of a multiple of pi",
                    _is_words, _infinite_at_poles),)),
    "special.bessel_j0": (_bessel(scipy.special.j0),),
    "special.bessel_y1": (_bessel(scipy.special.y1),),
    "nn.functional.margin_ranking_loss": (
        Difference("computed in floats, where PyTorch's bytes wrap", _is_bytes, _wide_and_back),),
    "nn.functional.poisson_nll_loss": (
        Difference("PyTorch's gradient of what is masked is NaN where the target is 0",
                   lambda one: bool(one.kwargs.get("full")) and bool((one.args[0] == 0).any()),
                   fault=r"gradient 1: np\.float64\([-\d.e]+\), expected np\.float64\(nan\)"),),
    "linalg.norm.subgradients_at_zero": (
        Difference("the gradient of a norm is 0 at 0, and so is that one's; PyTorch's is NaN",
                   lambda one: bool((one.input == 0).any()),
                   fault=r"second gradient 0: np\.float64\(0\.0\), expected np\.float64\(nan\)"),),
    "grid_sampler_3d": (
        Difference("rounding decides on which side of a kink a place lies, as in PyTorch's float32",
                   lambda one: one.input.dtype is torch.float32, _in_single),),
    "cat": (Difference("a vector of no elements joins only vectors",
                       lambda one: any(x.shape == (0,) for x in one.input),
                       fault="ShapeError: cat: axis 1 is out of range"),),
    "gather": (Difference("an empty index has as many axes as the tensor",
                          lambda one: one.args[1].numel() == 0,
                          fault="ShapeError: gather: the index doesn't fit"),),
    "scatter": (Difference(_CUT, lambda one: isinstance(one.args[2], float),
                           fault="DTypeError: scatter: the number is not an integer"),),
    "arange": (
        Difference(_CUT, lambda one: _makes_words(one) and _has_fraction(one), _truncated),
        Difference(_CUT, lambda one: _makes_words(one) and _has_fraction(one),
                   fault="DTypeError: arange: the number is not an integer"),
        Difference("integers without a dtype are int32",
                   lambda one: "dtype" not in one.kwargs and not _has_fraction(one),
                   _as(torch.int32)),
        _no_fit),
}  # fmt: skip


def on_purpose(name: str, how: Comparison, sample: Sample, outcome: Outcome) -> Outcome:
    """The outcome, or "differs" where it failed for a reason that is known and nothing else."""
    if outcome.state != "failed":
        return outcome
    for known in DIFFERENCES.get(name, ()):
        if known.explains(how, sample, outcome):
            return Outcome("differs", known.reason)
    return outcome
