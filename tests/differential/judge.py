"""Runs one sample of PyTorch's here and there, and says whether the answers agree."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from tilework import Tensor, dtypes
from tilework.base.errors import TileworkError

Array = Any
#: What a value may be off by, relative to itself and to the largest magnitude of its tensor, if it
#: is computed in float32.
RELATIVE = 2e-5
OF_LARGEST = 2e-5
#: By how much that grows where the least precise float among the operands is another one.
GROWTH = {torch.float64: 2e-5, torch.float32: 1.0, torch.float16: 400.0, torch.bfloat16: 3200.0}

_TO_TILEWORK = {
    torch.float32: dtypes.float32, torch.float64: dtypes.float64, torch.float16: dtypes.float16,
    torch.bfloat16: dtypes.bfloat16, torch.int8: dtypes.int8, torch.uint8: dtypes.uint8,
    torch.int16: dtypes.int16, torch.int32: dtypes.int32, torch.int64: dtypes.int64,
    torch.bool: dtypes.bool_, torch.uint64: dtypes.uint64,
}  # fmt: skip
#: Errors of PyTorch's own gradients are heeded below this, in float32.
LITTLE = 1e-3


class NotApplicableError(Exception):
    """The sample asks for something that is not a part of this language; the text says what."""


@dataclass(frozen=True)
class Outcome:
    """What became of one sample: "passed", "failed" or "skipped", and why."""

    state: str
    reason: str = ""


def as_ours(value: Any) -> Any:
    """A value of PyTorch (tensors in lists and dictionaries too) as one of tilework."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise NotApplicableError("sparse tensors")
        plain = value.detach()
        if plain.is_complex():
            plain = torch.view_as_real(plain.resolve_conj())
        if plain.dtype not in _TO_TILEWORK:
            raise NotApplicableError(f"dtype {plain.dtype}")
        if plain.dtype is torch.bfloat16:
            return Tensor(plain.float().numpy()).cast(dtypes.bfloat16)
        return Tensor(np.array(plain.resolve_neg().numpy()))
    if isinstance(value, torch.dtype):
        if value not in _TO_TILEWORK:
            raise NotApplicableError(f"dtype {value}")
        return _TO_TILEWORK[value]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[as_ours(each) for each in value])
    if isinstance(value, list | tuple):
        return type(value)([as_ours(each) for each in value])
    if isinstance(value, dict):
        return {name: as_ours(each) for name, each in value.items()}
    if isinstance(value, complex):
        raise NotApplicableError("complex numbers")
    return value


def _walk(value: Any, kind: type) -> Iterator[Any]:
    if isinstance(value, kind):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _walk(each, kind)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _walk(each, kind)


def tensors_of(value: Any, kind: type) -> list[Any]:
    """All tensors in nested lists, tuples and dictionaries."""
    return list(_walk(value, kind))


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same lists, tuples and dictionaries of changed tensors; dtypes of floats as float64."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, torch.dtype):
        return torch.float64 if value in GROWTH else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[mapped(each, change) for each in value])
    if isinstance(value, list | tuple):
        return type(value)([mapped(each, change) for each in value])
    if isinstance(value, dict):
        return {name: mapped(each, change) for name, each in value.items()}
    return value


def _widened(x: torch.Tensor) -> torch.Tensor:
    """The same numbers in float64, to compute the truth with."""
    wide = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64)
    wide[torch.complex64] = torch.complex128
    return x.detach().to(wide.get(x.dtype, x.dtype)).clone()


def _flat(value: Any) -> list[Any]:
    """Tensors and numbers of a result, in order."""
    if isinstance(value, list | tuple | torch.Size):
        return [leaf for each in value for leaf in _flat(each)]
    return [value]


def _as_array(value: Any) -> Array:
    if isinstance(value, torch.Tensor):
        plain = value.detach().resolve_conj().resolve_neg()
        if plain.is_complex():
            plain = torch.view_as_real(plain)
        plain = plain.float() if plain.dtype is torch.bfloat16 else plain
        return plain.numpy(force=True)
    if isinstance(value, Tensor):
        return value.numpy()
    return np.asarray(value)


def difference(
    ours: Array,
    truth: Array,
    relative: float,
    of_largest: float,
    absolute: float = 1e-7,
    greatest: float = 3.4028235e38,
) -> str:
    """How two arrays differ beyond the tolerance, or an empty text."""
    if ours.shape != truth.shape:
        return f"shape {ours.shape}, expected {truth.shape}"
    if not ours.size:
        return ""
    if not np.issubdtype(truth.dtype, np.floating):
        wrong = ours != truth
        return f"{int(wrong.sum())} of {wrong.size} differ" if wrong.any() else ""
    a, b = ours.astype(np.float64), truth.astype(np.float64)
    with np.errstate(all="ignore"):
        finite = np.isfinite(b)
        top = float(np.abs(b[finite]).max()) if finite.any() else 0.0
        allowed = relative * np.abs(b) + of_largest * top + absolute
        fits = np.where(finite, np.abs(a - b) <= allowed, (a == b) | (np.isnan(a) & np.isnan(b)))
        # What the dtype can't hold is infinite in it.
        beyond = (np.abs(b) > greatest) & (np.abs(a) >= 0.999 * greatest)
        fits |= beyond & (np.sign(a) == np.sign(b))
    if fits.all():
        return ""
    place = int(np.argmin(fits.reshape(-1)))
    return f"{a.reshape(-1)[place]!r}, expected {b.reshape(-1)[place]!r} at {place}"


@dataclass(frozen=True)
class Sample:
    """One call: `function(input, *args, **kwargs)` in PyTorch."""

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """How an op is compared."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    relative: float = RELATIVE
    of_largest: float = OF_LARGEST
    has_gradient: bool = True
    #: Integers may come wider than PyTorch's.
    widens: bool = False
    #: 2 compares the gradient of the gradient too.
    order: int = 1
    #: Terms of a gradient cancel: it is off by a share of the largest of the sample's gradients.
    cancels: bool = False

    def loosened(self, by: float) -> Comparison:
        """The same with bounds of another dtype or of a derived value."""
        return replace(self, relative=self.relative * by, of_largest=self.of_largest * by)


def judge(how: Comparison, sample: Sample) -> Outcome:
    """Run a sample on both sides and compare the values and the gradients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run = _begun(how, sample)
            if isinstance(run, Outcome):
                return run
            if run.lazy:
                Tensor.realize(*run.lazy)
            outcome = _compared(run, run.truth)
            if "gradient" in outcome.reason:
                outcome = _compared(run, _with_own(run.how, run.call, run.truth))
            return outcome
        except NotApplicableError as error:
            return Outcome("skipped", str(error))
        except TileworkError as error:
            return Outcome("failed", f"{type(error).__name__}: {str(error).splitlines()[0]}")
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            return Outcome("failed", f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class _Run:
    """Both sides of a sample; tilework's tensors are lazy."""

    how: Comparison
    call: Any
    truth: _Truth
    ours: list[Any]
    gradients: list[Tensor]
    second: list[Tensor]

    @property
    def lazy(self) -> list[Tensor]:
        everything = (*self.ours, *self.gradients, *self.second)
        return [x for x in everything if isinstance(x, Tensor)]


def _begun(how: Comparison, sample: Sample) -> _Run | Outcome:
    """What both sides make of a sample, or what became of it where that says it all."""
    call = (sample.input, sample.args, sample.kwargs)
    first, args, kwargs = given = as_ours(call)
    truth = _truth(how, call)
    how = how.loosened(_growth(call, truth))
    leaves = [x for x in tensors_of(given, Tensor) if x.dtype.is_float]
    ours = _flat(how.ours(first, *args, **kwargs))
    if len(ours) != len(truth.plain):
        return Outcome("failed", f"{len(ours)} results, expected {len(truth.plain)}")
    gradients: list[Tensor] = []
    if truth.gradients is not None and how.has_gradient:
        total: Any = 0.0
        for x, g in zip(ours, truth.cotangents, strict=True):
            if g is not None:
                total = total + (x * Tensor(g.numpy()).cast(x.dtype)).sum()
        leaves = leaves[: len(truth.gradients)]
        gradients = total.gradient(*leaves, materialize_grads=True)
    return _Run(how, call, truth, ours, gradients, _second(gradients, leaves, truth))


@dataclass(frozen=True)
class _Truth:
    """What PyTorch says: the result in the sample's dtype, and in float64 with gradients."""

    plain: list[Any]
    wide: list[Any]
    gradients: list[Any] | None
    cotangents: list[Any]
    #: What the gradients are weighed by, and the gradient of that sum.
    weights: list[Any] = field(default_factory=list)
    second: list[Any] = field(default_factory=list)
    #: How far PyTorch's own gradients in the sample's dtype are from these, of each order.
    slack: dict[int, list[float]] = field(default_factory=dict)
    #: PyTorch's own gradients in the sample's dtype.
    own: dict[int, list[Any]] = field(default_factory=dict)

    def held(self, order: int, number: int, found: Array, expected: Array) -> Array:
        """What a gradient must be, or what it is where PyTorch's own leaves the dtype.

        There a part of it is beyond the dtype, and the sum of such parts may be NaN.
        """
        known = self.own.get(order, [])
        mine = known[number] if number < len(known) else None
        if mine is None or mine.shape != expected.shape:
            return expected
        return np.where(mine.isfinite().numpy() | np.isfinite(found), expected, found)

    def allowed(self, order: int, number: int) -> float:
        """What a gradient may be off by beyond the bounds."""
        known = self.slack.get(order, [])
        return 4 * known[number] if number < len(known) else 0.0


def _growth(call: Any, truth: _Truth) -> float:
    """How much looser the bounds are than those of float32."""
    values = [*tensors_of(call, torch.Tensor), *truth.plain]
    kinds = {x.dtype for x in values if isinstance(x, torch.Tensor)}
    kinds.update(_walk(call, torch.dtype))
    return max([GROWTH[kind] for kind in kinds if kind in GROWTH], default=1.0)


def _with_own(how: Comparison, call: Any, truth: _Truth) -> _Truth:
    """The truth with PyTorch's gradients in the dtype of the sample, and what they are off by.

    Terms that cancel leave rounding behind that no bound relative to the result can allow for; it
    is allowed where it is little.
    """
    own = _truth(how, call, _mapped_plain)
    found: dict[int, list[float]] = {}
    for order, mine, wide in ((1, own.gradients, truth.gradients), (2, own.second, truth.second)):
        found[order] = []
        for x, y in zip(mine or (), wide or (), strict=False):
            off = 0.0
            if x is not None and y is not None and x.numel():
                off = float((x.double() - y.double()).abs().max())
            found[order].append(off if off < LITTLE * how.of_largest / OF_LARGEST else 0.0)
    return replace(truth, slack=found, own={1: own.gradients or [], 2: own.second})


def _mapped_wide(call: Any) -> Any:
    return mapped(call, _widened)


def _truth(how: Comparison, call: Any, prepared: Callable[[Any], Any] = _mapped_wide) -> _Truth:
    try:
        plain = _flat(_run(how, _mapped_plain(call)))
    except RuntimeError as error:
        raise NotApplicableError(f"what PyTorch refuses of a copy: {error}") from error
    # Some operators have no gradient for a target or a weight, and refuse all if asked for one.
    for leaves_of in (call, call[0], None) if how.has_gradient else (None,):
        wide_call = prepared(call)
        leaves = [x for x in tensors_of(wide_call, torch.Tensor) if x.is_floating_point()]
        asked = [x for x in tensors_of(leaves_of, torch.Tensor) if x.is_floating_point()]
        for leaf in leaves[: len(asked)]:
            leaf.requires_grad_()
        try:
            wide = _flat(_run(how, wide_call))
            return _with_gradients(how, plain, wide, leaves[: len(asked)])
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            continue
    return _Truth(plain, plain, None, [])


def _with_gradients(
    how: Comparison, plain: list[Any], wide: list[Any], leaves: list[torch.Tensor]
) -> _Truth:
    if not any(isinstance(x, torch.Tensor) and x.requires_grad for x in wide):
        return _Truth(plain, wide, None, [])
    generator = torch.Generator().manual_seed(1)
    cotangents: list[Any] = []
    for x, given in zip(wide, plain, strict=True):
        if isinstance(x, torch.Tensor) and x.requires_grad:
            shape = (*x.shape, 2) if x.is_complex() else tuple(x.shape)
            drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
            cotangents.append(_as_held(drawn, given))
        else:
            cotangents.append(None)
    total = torch.zeros((), dtype=torch.float64)
    for x, g in zip(wide, cotangents, strict=True):
        if g is not None:
            real = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
            total = total + (real * g).sum()
    is_double = how.order == 2
    found = torch.autograd.grad(total, leaves, allow_unused=True, create_graph=is_double)
    truth = _Truth(plain, wide, list(found), cotangents)
    if is_double:
        _add_second(truth, leaves, generator)
    return truth


def _as_held(numbers: torch.Tensor, result: Any) -> torch.Tensor:
    """The numbers that the dtype of a result holds, so that both sides weigh by the same ones."""
    kind = result.dtype if isinstance(result, torch.Tensor) else torch.float64
    kind = {torch.complex64: torch.float32}.get(kind, kind)
    return numbers.to(kind).double() if kind in GROWTH else numbers


def _add_second(truth: _Truth, leaves: list[Any], generator: torch.Generator) -> None:
    total: Any = torch.zeros((), dtype=torch.float64)
    for g in truth.gradients or ():
        weight = None
        if g is not None and g.requires_grad:
            drawn = torch.randn(g.shape, generator=generator, dtype=torch.float64)
            weight = drawn.float().double()  # second gradients are compared in float32
            total = total + (g * weight).sum()
        truth.weights.append(weight)
    if total.requires_grad:
        try:
            found = torch.autograd.grad(total, leaves, allow_unused=True)
        except (RuntimeError, NotImplementedError):
            return  # PyTorch has none of these
        truth.second.extend(found)


def _mapped_plain(call: Any) -> Any:
    def copied(x: torch.Tensor) -> torch.Tensor:
        return x.detach().clone()

    if isinstance(call, torch.Tensor):
        return copied(call)
    if isinstance(call, tuple) and hasattr(call, "_fields"):
        return type(call)(*[_mapped_plain(each) for each in call])
    if isinstance(call, list | tuple):
        return type(call)([_mapped_plain(each) for each in call])
    if isinstance(call, dict):
        return {name: _mapped_plain(each) for name, each in call.items()}
    return call


def _run(how: Comparison, call: Any) -> Any:
    first, args, kwargs = call
    return how.theirs(first, *args, **kwargs)


def _compared(run: _Run, truth: _Truth) -> Outcome:
    how, gradients, second = run.how, run.gradients, run.second
    for number, (x, plain, wide) in enumerate(zip(run.ours, truth.plain, truth.wide, strict=True)):
        if reason := _value_fault(how, x, plain, wide):
            return Outcome("failed", f"result {number}: {reason}")
    top = _largest(truth.gradients or ()) if how.cancels else 0.0
    for number, (x, wide) in enumerate(zip(gradients, truth.gradients or (), strict=True)):
        expected = np.zeros(x.shape) if wide is None else _as_array(wide)
        absolute = 2e-6 + truth.allowed(1, number) + how.of_largest * top
        bounds = (4 * how.relative, 4 * how.of_largest, absolute, _greatest(x))
        expected = truth.held(1, number, x.numpy(), expected)
        if reason := difference(x.numpy(), expected, *bounds):
            return Outcome("failed", f"gradient {number}: {reason}")
    for number, (x, wide) in enumerate(zip(second, truth.second, strict=True)):
        expected = np.zeros(x.shape) if wide is None else _as_array(wide)
        absolute = 1e-5 + truth.allowed(2, number)
        bounds = (16 * how.relative, 16 * how.of_largest, absolute, _greatest(x))
        expected = truth.held(2, number, x.numpy(), expected)
        if reason := difference(x.numpy(), expected, *bounds):
            return Outcome("failed", f"second gradient {number}: {reason}")
    return Outcome("passed")


def _second(gradients: list[Tensor], leaves: list[Tensor], truth: _Truth) -> list[Tensor]:
    """The gradients of a sum of the gradients, weighed as PyTorch's were."""
    if not truth.second:
        return []
    total: Any = 0.0
    for x, weight in zip(gradients, truth.weights, strict=True):
        if weight is not None:
            total = total + (x * Tensor(weight.numpy()).cast(x.dtype)).sum()
    return list(total.gradient(*leaves, materialize_grads=True))


def _largest(gradients: Iterable[Any]) -> float:
    """The largest finite magnitude in several gradients."""
    parts = [x.detach().abs().flatten() for x in gradients if x is not None]
    together = torch.cat(parts) if parts else torch.zeros(0)
    finite = together[together.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


def _greatest(x: Any) -> float:
    """The largest finite number of a tensor's dtype."""
    if not isinstance(x, Tensor) or not x.dtype.is_float:
        return 3.4028235e38
    return float(torch.finfo(getattr(torch, x.dtype.name)).max)


def _value_fault(how: Comparison, x: Any, plain: Any, wide: Any) -> str:
    if isinstance(plain, torch.Tensor) and isinstance(x, Tensor):
        kind = plain.dtype
        kind = {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(kind, kind)
        is_wider = how.widens and x.dtype.is_integer and not kind.is_floating_point
        if _TO_TILEWORK.get(kind) is not x.dtype and not is_wider:
            return f"dtype {x.dtype.name}, expected {kind}"
    bounds = (how.relative, how.of_largest, 1e-7, _greatest(x))
    found = _as_array(x)
    if how.widens and found.dtype.kind in "iu":
        found = found.astype(_as_array(plain).dtype)  # equal modulo the width that PyTorch keeps
    reason = difference(found, _as_array(wide), *bounds)
    if reason and not difference(found, _as_array(plain), *bounds):
        return ""  # PyTorch itself gives another answer in float64, as for fractions and edges
    return reason
