"""Generated cases: what they are, and whether the answers of a batch of them are right.

    case = Case("add", (operand, operand), (("alpha", 2),))
    faults = judge([case, ...])      # the texts of those that are wrong

The truth of floats is PyTorch's answer in float64, rounded by the bound of the operation; that of
integers is PyTorch's or NumPy's, and exact.  A batch is one realize, values and gradients together,
so that what the scheduler makes of many small results is tested too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import torch
from tests.differential.generated.operands import FLOATS, Operand, storage

from tilework import Device, Tensor
from tilework.base import settings
from tilework.base.errors import TileworkError

Array = Any


@dataclass(frozen=True)
class Bound:
    """What a float may be off by, in epsilons of its dtype.

    Attributes:
        own: of its own magnitude.
        largest: of the largest magnitude among the result and the operands.
        magnitude: of the result that the magnitudes of the operands give.
    """

    own: float = 0.0
    largest: float = 0.0
    magnitude: float = 0.0


EXACT = Bound()
ROUNDED = Bound(own=0.51)


def ulps(count: float) -> Bound:
    """Of an elementwise function that is computed in one piece."""
    return Bound(own=count)


def composed(count: float = 8) -> Bound:
    """Of what rounds several times on its way."""
    return Bound(own=count, largest=count)


def summed(count: float = 8) -> Bound:
    """Of sums and products of sums."""
    return Bound(own=1, magnitude=count)


@dataclass(frozen=True)
class Op:
    """An operation on both sides, and the strategy of its operands and options."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    draw: Callable[..., tuple[tuple[Operand, ...], dict[str, Any]]]
    bound: Bound = EXACT
    has_gradient: bool = True
    #: The answer for dtypes that PyTorch has no kernels for.
    numpy: Callable[..., Any] | None = None
    #: Integers may come wider than PyTorch's.
    widens: bool = False
    #: Compute the truth in the operands' dtype: the op is exact or a staircase.
    is_native: bool = False
    #: Zeros are compared with their signs.
    has_signed_zeros: bool = False
    #: Of gradients, in epsilons of the largest.
    gradient_bound: float = 64.0


@dataclass(frozen=True)
class Case:
    """A call of an operation."""

    op: Op
    operands: tuple[Operand, ...]
    options: tuple[tuple[str, Any], ...]

    @property
    def structure(self) -> tuple[Any, ...]:
        """What makes two cases distinct: all but the random numbers."""
        return self.op.name, tuple(one.structure for one in self.operands), repr(self.options)

    @property
    def is_differentiated(self) -> bool:
        """Whether its gradients are compared: not where values are infinite or NaN."""
        smooth = {"special", "holes", "large"}
        return (
            self.op.has_gradient
            and not any(one.is_float and one.fill in smooth for one in self.operands)
            and any(one.is_float for one in self.operands)
        )

    def __str__(self) -> str:
        operands = ", ".join(
            f"{one.dtype}{list(one.shape)} of {one.fill} (seed {one.seed}, base "
            f"{list(one.base_shape)}, steps {list(one.steps)})" for one in self.operands
        )  # fmt: skip
        return f"{self.op.name}({operands}, {dict(self.options)})"


# --- both sides --------------------------------------------------------------------------------


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in _flat(each)]
    return [value]


def _as_torch(x: Array) -> torch.Tensor:
    if x.dtype == ml_dtypes.bfloat16:
        # Bit by bit: a conversion from float32 gives each NaN the sign 1.
        return (
            torch.tensor(np.ascontiguousarray(x).view(np.int16))
            .reshape(x.shape)
            .view(torch.bfloat16)
        )
    return torch.tensor(x)


def _numpy_of(x: torch.Tensor) -> Array:
    plain = x.detach().resolve_conj().resolve_neg()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    return plain.float().numpy() if plain.dtype is torch.bfloat16 else plain.numpy()


@dataclass
class _Truth:
    results: list[Array]
    dtypes: list[str | None]
    gradients: list[Array] = field(default_factory=list)
    cotangents: list[Array | None] = field(default_factory=list)
    magnitudes: list[Array] = field(default_factory=list)


def _name(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    return {"complex64": "float32", "complex128": "float64"}.get(name, name)


def truth_of(case: Case) -> _Truth:
    """The answers of PyTorch, or of NumPy where PyTorch has none."""
    op, options = case.op, dict(case.options)
    if op.numpy is not None and any(
        one.dtype in ("uint16", "uint32", "uint64") or op.theirs is op.numpy
        for one in case.operands
    ):
        with np.errstate(all="ignore"):
            answers = _flat(op.numpy(*[one.array() for one in case.operands], **options))
        arrays = [np.asarray(each) for each in answers]
        return _Truth(arrays, [str(each.dtype) for each in arrays])
    bases = [_as_torch(one.base()) for one in case.operands]
    plain = _plain(case, bases)
    is_wide = plain is None or not op.is_native
    wide = bases if not is_wide else [x.double() if x.is_floating_point() else x for x in bases]
    leaves = [x for x in wide if x.is_floating_point()]
    for leaf in leaves:
        leaf.requires_grad_(case.is_differentiated)
    views = [one.theirs(x) for one, x in zip(case.operands, wide, strict=True)]
    results = [torch.as_tensor(each) for each in _flat(op.theirs(*views, **options))]
    if plain is not None:
        dtypes: list[str | None] = [_name(each.dtype) for each in plain]
    else:  # the floats have the dtype of the operands
        kinds = [one.dtype for one in case.operands if one.is_float]
        dtypes = [kinds[0] if each.is_floating_point() else None for each in results]
    found = _Truth([_numpy_of(each) for each in results], dtypes)
    if op.bound.magnitude:
        views = [one.theirs(x.detach()) for one, x in zip(case.operands, wide, strict=True)]
        views = [x.abs() if x.is_floating_point() else x for x in views]
        found.magnitudes = [_numpy_of(each) for each in _flat(op.theirs(*views, **options))]
    if case.is_differentiated and any(each.requires_grad for each in results):
        _add_gradients(found, results, leaves)
    return found


def _plain(case: Case, bases: list[torch.Tensor]) -> list[torch.Tensor] | None:
    """PyTorch's results in the operands' own dtypes, which say the dtypes of the results."""
    views = [one.theirs(x) for one, x in zip(case.operands, bases, strict=True)]
    try:
        return [
            torch.as_tensor(each) for each in _flat(case.op.theirs(*views, **dict(case.options)))
        ]
    except (RuntimeError, NotImplementedError):
        return None  # it has no kernel for this dtype


def _add_gradients(found: _Truth, results: list[torch.Tensor], leaves: list[torch.Tensor]) -> None:
    generator = torch.Generator().manual_seed(1)
    total = torch.zeros((), dtype=torch.float64)
    for each, dtype in zip(results, found.dtypes, strict=True):
        if not each.requires_grad:
            found.cotangents.append(None)
            continue
        real = torch.view_as_real(each.resolve_conj()) if each.is_complex() else each
        numbers = torch.randn(real.shape, generator=generator, dtype=torch.float64)
        seed = numbers.numpy().astype(storage(dtype if dtype in FLOATS else "float32"))
        found.cotangents.append(seed)
        total = total + (real.double() * torch.tensor(seed.astype(np.float64))).sum()
    gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    found.gradients = [
        np.zeros(leaf.shape) if each is None else each.double().numpy()
        for leaf, each in zip(leaves, gradients, strict=True)
    ]


@dataclass
class _Run:
    """What tilework makes of a case: lazy tensors until the batch is realized."""

    case: Case
    truth: _Truth
    results: list[Any] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    fault: str = ""

    @property
    def lazy(self) -> list[Tensor]:
        return [x for x in (*self.results, *self.gradients) if isinstance(x, Tensor)]


_OWN_ERRORS = (TileworkError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError)


def _build(case: Case, device: str) -> _Run:
    run = _Run(case, truth_of(case))
    bases = [Tensor(one.base(), device=device) for one in case.operands]
    try:
        views = [one.ours(x) for one, x in zip(case.operands, bases, strict=True)]
        run.results = _flat(case.op.ours(*views, **dict(case.options)))
        if len(run.results) != len(run.truth.results):
            run.fault = f"{len(run.results)} results, expected {len(run.truth.results)}"
        elif run.truth.gradients:
            total: Any = 0.0
            for x, seed in zip(run.results, run.truth.cotangents, strict=True):
                if seed is not None:
                    total = total + (x * Tensor(seed, device=device)).sum()
            leaves = [x for x, one in zip(bases, case.operands, strict=True) if one.is_float]
            run.gradients = total.gradient(*leaves, materialize_grads=True)
    except _OWN_ERRORS as error:
        run.fault = f"{type(error).__name__}: {error}"
    return run


def judge(cases: Sequence[Case], device: str | None = None) -> list[str]:
    """Run the cases in one realize, and say what is wrong with each that is."""
    device = device or Device.DEFAULT
    with warnings.catch_warnings(), settings.override(dev=device):
        warnings.simplefilter("ignore")
        runs = [_build(case, device) for case in cases]
        try:
            if lazy := [x for run in runs if not run.fault for x in run.lazy]:
                Tensor.realize(*lazy)
        except _OWN_ERRORS as error:
            if len(cases) > 1:
                alone = [fault for case in cases for fault in judge([case], device)]
                return alone or [f"only together: {error}: " + "; ".join(map(str, cases))]
            return [f"{cases[0]}\n    {type(error).__name__}: {error}"]
        faults = [(run.case, run.fault or _fault_of(run)) for run in runs]
    return [f"{case}\n    {fault}" for case, fault in faults if fault]


# --- comparison --------------------------------------------------------------------------------


def _fault_of(run: _Run) -> str:
    """What is wrong with the values, or an empty text."""
    truth, op = run.truth, run.case.op
    magnitudes = truth.magnitudes or [None] * len(truth.results)
    top = max([_top(one.array()) for one in run.case.operands if one.is_float], default=0.0)
    rows = zip(run.results, truth.results, truth.dtypes, magnitudes, strict=True)
    for number, (x, expected, dtype, magnitude) in enumerate(rows):
        fault = _value_fault(op, x, expected, dtype, magnitude, top)
        if fault:
            return f"result {number}: {fault}"
    bound = Bound(own=op.gradient_bound, largest=op.gradient_bound)
    for number, (x, expected) in enumerate(zip(run.gradients, truth.gradients, strict=True)):
        worst = min((each for each in truth.dtypes if each in FLOATS), key=_epsilon)
        kind = max(x.dtype.name, worst, key=_epsilon)
        allowed = _allowed(bound, expected, _epsilon(kind), None, 1.0)
        fault = _difference(x.numpy(), expected, allowed, x.dtype.name, False)
        if fault:
            return f"gradient {number}: {fault}"
    return ""


def _top(x: Array) -> float:
    finite = np.abs(x.astype(np.float64))[np.isfinite(x.astype(np.float64))]
    return float(finite.max(initial=0.0))


def _epsilon(dtype: str) -> float:
    return float(ml_dtypes.finfo(storage(dtype)).eps)  # type: ignore[no-untyped-call]


def _value_fault(
    op: Op, x: Any, expected: Array, dtype: str | None, magnitude: Array | None, top: float
) -> str:
    if not isinstance(x, Tensor):
        return "" if bool(np.all(np.asarray(x) == expected)) else f"{x}, expected {expected}"
    kind = x.dtype.name
    wider = op.widens and x.dtype.is_integer and dtype is not None and dtype not in FLOATS
    if dtype is not None and kind != dtype and not wider:
        return f"dtype {kind}, expected {dtype}"
    found = x.numpy()
    if found.shape != expected.shape:
        return f"shape {found.shape}, expected {expected.shape}"
    if kind not in FLOATS:
        # What is kept in 64 bits here is equal modulo the width that PyTorch keeps.
        found = found.astype(expected.dtype) if wider else found
        wrong = found != expected
        if not wrong.any():
            return ""
        place = int(np.argmax(wrong.reshape(-1)))
        values = found.reshape(-1)[place], expected.reshape(-1)[place]
        return f"{int(wrong.sum())} of {wrong.size} differ: {values[0]}, expected {values[1]}"
    allowed = _allowed(op.bound, expected, _epsilon(kind), magnitude, top)
    least = 0.5000001 if op.bound.own < 1 else 1.5
    return _difference(found, expected, allowed, kind, op.has_signed_zeros, least)


def _allowed(
    bound: Bound, expected: Array, epsilon: float, magnitude: Array | None, top: float
) -> Array:
    with np.errstate(all="ignore"):
        wide = np.abs(expected.astype(np.float64))
        allowed = bound.own * wide + bound.largest * max(_top(expected), top)
        if magnitude is not None:
            allowed = allowed + bound.magnitude * magnitude
    return allowed * epsilon


def _difference(
    found: Array, expected: Array, allowed: Array, dtype: str, signed: bool, least: float = 1.5
) -> str:
    """How floats differ beyond what is allowed, which is at least `least` steps of the dtype."""
    info: Any = ml_dtypes.finfo(storage(dtype))  # type: ignore[no-untyped-call]
    a, b = found.astype(np.float64), expected.astype(np.float64)
    if a.shape != b.shape:
        return f"shape {a.shape}, expected {b.shape}"
    with np.errstate(all="ignore"):
        _, exponents = np.frexp(b)
        step = np.ldexp(1.0, np.maximum(exponents - 1, info.minexp) - info.nmant)
        # What overflows in the dtype may be infinite, and what nearly does.
        edge = float(info.max) * (1 + 0.25 * float(info.eps)) - allowed
        overflows = (np.abs(b) >= edge) & np.isinf(a) & (np.signbit(a) == np.signbit(b))
        near = np.abs(a - b) <= np.maximum(allowed, least * step)
        fits = np.where(np.isfinite(b), near | overflows, (a == b) | (np.isnan(a) & np.isnan(b)))
        if signed:
            fits &= (a != 0) | (b != 0) | (np.signbit(a) == np.signbit(b))
    if fits.all():
        return ""
    place = int(np.argmin(np.reshape(fits, -1)))
    values = a.reshape(-1)[place], b.reshape(-1)[place]
    count = int((~np.asarray(fits)).sum())
    return f"{values[0]!r}, expected {values[1]!r} at {place} ({count} of {a.size})"
