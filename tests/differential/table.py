"""Which of PyTorch's operators are compared, how, and why the others are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.differential.adapters import ADAPTERS, by_method, short_name
from tests.differential.judge import Comparison

_RANDOM = "random: its own tests are statistical"
_EMPTY = "its elements are not defined"
_INTERNAL = "an internal function of PyTorch"
_COMPLEX = "complex numbers are pairs here; see the FFT"

_MASKED = (
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp",
    "logsumexp", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum",
    "var",
)  # fmt: skip

#: Operators that are not compared, each with its reason.
SKIPPED: dict[str, str] = {
    **dict.fromkeys(
        ("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal",
         "normal.in_place", "normal.number_mean", "rand_like", "randint", "randint_like", "randn",
         "randn_like", "uniform", "nn.functional.dropout", "nn.functional.dropout2d",
         "nn.functional.dropout3d", "nn.functional.alpha_dropout", "nn.functional.rrelu",
         "nn.functional.feature_alpha_dropout.with_train", "nn.functional.fractional_max_pool2d",
         "nn.functional.fractional_max_pool3d", "svd_lowrank", "pca_lowrank"),
        _RANDOM,
    ),
    **dict.fromkeys(
        ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
         "new_empty_strided", "resize_", "resize_as_"),
        _EMPTY,
    ),
    **dict.fromkeys(
        ("_segment_reduce.lengths", "_segment_reduce.offsets", "_softmax_backward_data",
         "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "_chunk_cat",
         "_batch_norm_with_update", "_native_batch_norm_legit", "_upsample_bilinear2d_aa",
         "torch.ops.aten._safe_softmax.default", "native_batch_norm", "native_group_norm",
         "native_layer_norm", "native_dropout_backward", "max_pool2d_with_indices_backward",
         "torch.ops.aten._efficient_attention_forward", "hash_tensor",
         "torch.ops.aten._flash_attention_forward", "torch._scaled_mm", "torch._scaled_mm_v2",
         "jiterator_2inputs_2outputs", "jiterator_4inputs_with_extra_args", "jiterator_binary",
         "jiterator_binary_return_by_ref", "jiterator_unary"),
        _INTERNAL,
    ),
    **dict.fromkeys(
        ("cdouble", "cfloat", "chalf", "complex", "conj", "conj_physical", "imag", "real",
         "polar", "view_as_complex", "view_as_real", "angle", "resolve_conj", "resolve_neg",
         "H", "mH", "nn.functional.silu.complex", "linalg.eig", "linalg.eigvals", "sgn"),
        _COMPLEX,
    ),
    **dict.fromkeys(
        [f"masked.{name}" for name in _MASKED],
        "torch.masked is not here: `where` says what takes part",
    ),
    **dict.fromkeys(
        ("sparse.mm.reduce", "sparse.sampled_addmm", "to_sparse"), "sparse tensors are not here"
    ),
}  # fmt: skip

#: Operators of whose gradients the terms cancel, so that the rounding of the terms is left.
CANCELS: dict[str, str] = {
    "cov": "two observations weigh the same, whatever their weights are",
}

#: Operators whose gradient is not compared, with the reason.
NO_GRADIENT: dict[str, str] = {
    "nextafter": "a staircase here; PyTorch passes the gradient on",
    "nn.functional.max_unpool1d": "two windows share a place, and one of them wins",
    "nn.functional.max_unpool2d": "two windows share a place, and one of them wins",
    "nn.functional.max_unpool3d": "two windows share a place, and one of them wins",
    "as_strided_scatter": "PyTorch gives one to what was overwritten, and none to the rest",
    "cholesky_inverse": "PyTorch gives one to the triangle that is not read",
    "cholesky_solve": "PyTorch gives one to the triangle that is not read",
    "linalg.pinv.hermitian": "PyTorch spreads it over both triangles, of which one is read",
    "zero_": "the input itself is written",
}

#: Operators of which some samples do not agree yet, with what is wrong.
FAULTS: dict[str, str] = {}

#: Operators whose second gradient is not compared, with the reason.
NO_SECOND: dict[str, str] = {}


#: Sums of integers, which are kept in 64 bits here, so that none wraps.
WIDER = frozenset(
    ("dot", "vdot", "mm", "bmm", "mv", "matmul", "__rmatmul__", "addmm", "addmm.decomposed",
     "addmv", "addbmm", "baddbmm", "inner", "einsum", "tensordot", "linalg.multi_dot",
     "linalg.vecdot", "linalg.matrix_power", "nn.functional.linear", "nn.functional.bilinear",
     "nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv3d",
     "nn.functional.conv_transpose1d", "nn.functional.conv_transpose2d",
     "nn.functional.conv_transpose3d")
)  # fmt: skip


def _up_to_sign(function: Callable[..., Any], *places: int) -> Callable[..., Any]:
    """Vectors that are determined up to their sign, as magnitudes."""

    def call(*args: Any, **kwargs: Any) -> Any:
        found = list(function(*args, **kwargs))
        return [x.abs() if place in places else x for place, x in enumerate(found)]

    return call


def _stable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A sort that keeps the order of equals, as all do here."""

    def call(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        options = dict(zip(("dim", "descending"), args, strict=False)) | kwargs
        return function(x, **(options | {"stable": True}))

    return call


def _first_ranks(
    x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> torch.Tensor:
    """What `topk` gives, of equals the first: PyTorch's does not say whose gradient it is."""
    found = torch.sort(x, dim=dim, descending=largest, stable=True)[0]
    return found.narrow(dim, 0, k) if x.ndim else found


def _last_mode(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> torch.Tensor:
    """What `mode` gives, of equals the last: PyTorch's does not say whose gradient it is."""
    if not x.ndim:
        return torch.mode(x, dim, keepdim)[0]
    found = torch.mode(x.detach(), dim, True)[0]
    places = torch.arange(x.shape[dim]).reshape(-1, *[1] * (x.ndim - 1)).movedim(0, dim)
    last = torch.where(x == found, places, -1).amax(dim, keepdim=True)
    chosen = x.gather(dim, last)
    return chosen if keepdim else chosen.squeeze(dim)


#: What PyTorch's side is called by, where that is not the operator itself.
THEIRS: dict[str, Callable[..., Any]] = {
    "linalg.eigh": _up_to_sign(torch.linalg.eigh, 1),
    "linalg.svd": _up_to_sign(torch.linalg.svd, 0, 2),
    "svd": _up_to_sign(torch.svd, 0, 2),
    "mode": _last_mode,
    "topk": _first_ranks,
    "kthvalue": lambda *args, **kwargs: torch.kthvalue(*args, **kwargs)[0],
    "sort": _stable(torch.sort),
    "argsort": _stable(torch.argsort),
    "msort": lambda x: torch.sort(x, dim=0, stable=True)[0],
    "lu": lambda x, *args: torch.linalg.lu_factor(x),
    "nn.functional.ctc_loss": lambda x, *args, **kwargs: torch.nn.functional.ctc_loss(
        x.log_softmax(-1), *args, **kwargs
    ),
    "linalg.inv_ex": lambda x, **kwargs: torch.linalg.inv(x),
    "linalg.lstsq": lambda a, b, driver=None: torch.linalg.lstsq(a, b, driver=driver)[0],
    "linalg.lstsq.grad_oriented": lambda a, b, driver=None: torch.linalg.lstsq(a, b, driver=driver)[
        0
    ],
}


def comparison_of(op: Any, name: str) -> Comparison | str:
    """How an operator is compared, or why it is not."""
    if name in SKIPPED:
        return SKIPPED[name]
    ours: Callable[..., Any] | None = ADAPTERS.get(name) or ADAPTERS.get(op.name)
    ours = ours or by_method(short_name(op.name))
    if ours is None:
        return "there is no such method"
    has_gradient = op.supports_autograd and name not in NO_GRADIENT
    theirs = THEIRS.get(name, op.op)
    return Comparison(
        ours,
        theirs,
        has_gradient=has_gradient,
        widens=name in WIDER,
        cancels=name in CANCELS,
    )
