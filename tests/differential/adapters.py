"""How PyTorch's operators are called here: by the method of that name, or as a table says."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tests.differential.judge import NotApplicableError

from tilework import Tensor, dtypes

Adapter = Callable[..., Any]

#: Names of arguments that say nothing here: memory formats, layouts, pinned memory and the like.
_IGNORED = frozenset({"layout", "pin_memory", "memory_format", "out", "generator", "check_errors"})
_RENAMED = {
    "dim": ("axis", "dims"), "axis": ("dim",), "dims": ("dim",), "sorted": ("sorted_",),
    "min": ("min_",), "max": ("max_",), "target": ("Y",), "p": ("ord",), "ord": ("p",),
    "tensors": ("others",), "A": ("B",), "decimals": ("digits",), "repeats": ("times",),
}  # fmt: skip


def by_method(name: str) -> Adapter | None:
    """A call of the method `name`, with PyTorch's names of arguments; None if there is none."""
    method = getattr(Tensor, name, None)
    if method is None or isinstance(method, property):
        return None if method is None else lambda x: getattr(x, name)
    known = set(inspect.signature(inspect.unwrap(method)).parameters)

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        found: dict[str, Any] = {}
        for key, value in kwargs.items():
            if key in _IGNORED or (key == "device" and "device" not in known):
                continue
            if key == "stable" and key not in known:
                continue  # all sorts are stable here
            options = [each for each in (key, *_RENAMED.get(key, ())) if each in known]
            found[options[0] if options else key] = None if key == "device" else value
        return method(x, *args, **found)

    return call


def short_name(name: str) -> str:
    """`conv2d` of `nn.functional.conv2d`."""
    return name.rpartition(".")[2]


def _on(name: str) -> Adapter:
    found = by_method(name)
    assert found is not None, name
    return found


def _first_of(name: str, place: int) -> Adapter:
    """One of several results."""
    function = _on(name)
    return lambda *args, **kwargs: function(*args, **kwargs)[place]


def _correction(name: str) -> Adapter:
    """`var` and its kin, whose arguments PyTorch spells in three ways."""

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        options = dict(kwargs)
        if "unbiased" in options:
            options["correction"] = int(options.pop("unbiased"))
        names = ["axis", "correction", "keepdim"]
        if args and isinstance(args[0], bool):
            names = ["correction"]
        for key, value in zip(names, args, strict=False):
            options[key] = int(value) if key == "correction" else value
        axis = options.pop("dim", options.pop("axis", None))
        correction = options.pop("correction", 1)
        if correction is None:
            correction = 1
        axis = None if axis is not None and not isinstance(axis, int) and not len(axis) else axis
        return getattr(x, name)(axis, options.get("keepdim", False), correction)

    return call


def _reduced(name: str) -> Adapter:
    """`max` and `min` over an axis give positions too."""

    def call(x: Any, dim: int, keepdim: bool = False) -> Any:
        if not x.ndim:
            return getattr(x, name)(), x._constant(0, dtypes.int64)
        return getattr(x, name)(dim, keepdim), getattr(x, f"arg{name}")(dim, keepdim)

    return call


def _pool(axes: int, name: str) -> Adapter:
    names = {
        "avg": ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad",
                "divisor_override"),
        "max": ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"),
    }[name]  # fmt: skip

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        options = dict(zip(names, args, strict=False)) | kwargs
        if axes == 2:
            override = options.pop("divisor_override", None)
            for key in ("kernel_size", "stride", "padding", "dilation"):
                value = options.get(key)
                if isinstance(value, tuple | list):
                    value = tuple(value) * 2 if len(value) == 1 else tuple(value)
                    options[key] = value or None
            if override is not None:
                raise NotApplicableError("divisor_override of avg_pool2d")
            return getattr(x, f"{name}_pool2d")(**options)
        return getattr(x, f"{name}_pool{axes}d")(**options)

    return call


def _conv(name: str, *names: str) -> Adapter:
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, name)(**(dict(zip(names, args, strict=False)) | kwargs))

    return call


_CONV = ("weight", "bias", "stride", "padding", "dilation", "groups")
_CONV_TRANSPOSE = (
    "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation",
)  # fmt: skip


def _norm(x: Any, *args: Any, **kwargs: Any) -> Any:
    names = ("p", "dim", "keepdim", "dtype")
    options = dict(zip(names, args, strict=False)) | kwargs
    p = options.get("p", "fro")
    dim = options.get("dim", options.get("axis"))
    kind = options.get("dtype")
    x = x if kind is None else x.cast(kind)
    p = 2.0 if p in ("fro", None) else float(p) if not isinstance(p, str) else p
    if p == "nuc":
        axes = (-2, -1) if dim is None else dim
        return x.matrix_norm("nuc", axes, options.get("keepdim", False))
    dim = None if dim is not None and not isinstance(dim, int) and not len(dim) else dim
    return x.norm(p, dim, options.get("keepdim", False))


def _linalg_norm(x: Any, *args: Any, **kwargs: Any) -> Any:
    options = dict(zip(("ord", "dim", "keepdim"), args, strict=False)) | kwargs
    order, dim = options.get("ord"), options.get("dim")
    keepdim = options.get("keepdim", False)
    kind = options.get("dtype")
    x = x if kind is None else x.cast(kind)
    is_matrix = (dim is None and x.ndim == 2) or (isinstance(dim, tuple | list) and len(dim) == 2)
    if order is not None and is_matrix:
        return x.matrix_norm(order, (-2, -1) if dim is None else tuple(dim), keepdim)
    if dim is None and order is not None and x.ndim > 1:
        raise NotApplicableError("a vector norm of more axes without dim")
    return x.vector_norm(2 if order is None else order, dim, keepdim)


def _dims(name: str, *before: str) -> Adapter:
    """Axes given one by one, or as one tuple."""

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, name)(*args, *kwargs.values())

    return call


def _loss(name: str) -> Adapter:
    function = _on(name)

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("size_average", None)
        kwargs.pop("reduce", None)
        return function(x, *args, **kwargs)

    return call


def _bce(name: str) -> Adapter:
    def call(x: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        options = dict(zip(("weight",), args, strict=False)) | kwargs
        return getattr(x, name)(target, **options)

    return call


def _attention(q: Any, k: Any, v: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("dropout_p"):
        raise NotApplicableError("random: dropout of attention")
    return q.scaled_dot_product_attention(k, v, *args, **kwargs)


def _complex(name: str) -> Adapter:
    """Transforms of complex numbers; a real input gets imaginary parts of 0."""

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        kinds = x.cast(dtypes.float32) if not x.dtype.is_float else x
        return _on(name)(kinds.with_imaginary(), *args, **kwargs)

    return call


def _index(x: Any, *index: Any) -> Any:
    return x[index[0] if len(index) == 1 else index]


def _window(name: str) -> Adapter:
    def call(length: int, **kwargs: Any) -> Any:
        kwargs.pop("requires_grad", None)
        options = {k: v for k, v in kwargs.items() if k not in ("layout", "device")}
        options["periodic"] = not options.pop("sym", True)
        return getattr(Tensor, f"{name}_window")(length, **options)

    return call


def _layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5) -> Any:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    found = x.layernorm(axes, eps)
    found = found if weight is None else found * weight
    return found if bias is None else found + bias


def _rms_norm(x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    found = x.rms_norm(axes, 1.1920928955078125e-07 if eps is None else eps)
    return found if weight is None else found * weight


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    return x.linear(weight.t(), bias) if weight.ndim else x * weight


def _embedding(weight: Any, index: Any, padding_idx: Any = None, max_norm: Any = None,
               norm_type: float = 2.0, scale_grad_by_freq: bool = False,
               sparse: bool = False) -> Any:  # fmt: skip
    if max_norm is not None or scale_grad_by_freq or sparse or padding_idx is not None:
        raise NotApplicableError("options of embedding that change the table or its gradient")
    return weight[index]


def _embedding_bag(weight: Any, index: Any, offsets: Any = None, **kwargs: Any) -> Any:
    for name in ("max_norm", "norm_type", "scale_grad_by_freq", "sparse"):
        if kwargs.pop(name, None):
            raise NotApplicableError("options of embedding that change the table or its gradient")
    return index.embedding_bag(weight, offsets, **kwargs)


def _cross_entropy(x: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    options = dict(zip(("weight",), args, strict=False)) | kwargs
    return x.cross_entropy(target, **options)


def _nll(x: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    options = dict(zip(("weight",), args, strict=False)) | kwargs
    options.setdefault("ignore_index", -100)
    return x.nll_loss(target, **options)


def _hardtanh(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x.hardtanh(*args, **kwargs)


def _pad(mode: str) -> Adapter:
    def call(x: Any, pad: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("mode", None)
        value = kwargs.get("value", args[1] if len(args) > 1 else 0)
        if not x.dtype.is_float and value is not None:
            value = bool(value) if x.dtype.is_bool else int(value)
        if mode == "constant":
            return x.pad(list(pad), value=0 if value is None else value)
        return x.pad(list(pad), mode=mode)

    return call


def _to(x: Any, *args: Any, **kwargs: Any) -> Any:
    for value in (*args, *kwargs.values()):
        if isinstance(value, dtypes.DType):
            return x.cast(value)
        if isinstance(value, Tensor):
            return x.cast(value.dtype)
    return x.clone()


def _where(condition: Any, *args: Any, **kwargs: Any) -> Any:
    return condition.where(*args, **kwargs)


def _where_sample(x: Any, condition: Any, other: Any) -> Any:
    return condition.where(x, other)


def _allclose(x: Any, other: Any, **kwargs: Any) -> Any:
    return x.allclose(other, **kwargs)


def _eigh(x: Any, *args: Any, **kwargs: Any) -> Any:
    values, vectors = x.eigh(*args, **kwargs)
    return values, vectors.abs()


def _svd(x: Any, *args: Any, **kwargs: Any) -> Any:
    full = kwargs.get("full_matrices", args[0] if args else True)
    if full and x.shape[-1] != x.shape[-2]:
        raise NotApplicableError("the further columns of full matrices are free")
    u, s, v = x.svd()
    return u.abs(), s, v.abs()


def _topk(x: Any, *args: Any, **kwargs: Any) -> Any:
    options = dict(zip(("k", "dim", "largest", "sorted_"), args, strict=False)) | kwargs
    options["sorted_"] = options.pop("sorted", options.get("sorted_", True))
    return x.topk(**options)[0]


def _each_of(name: str) -> Adapter:
    """A method of one tensor, for each of several."""
    function = _on(name)

    def call(x: Any, *rest: Any) -> Any:
        return [function(one) for one in x] if isinstance(x, list | tuple) else function(x)

    return call


def _unfold(x: Any, *args: Any) -> Any:
    return x.unfold(*args)


def _repeat_interleave(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x.repeat_interleave(*args, **{k: v for k, v in kwargs.items() if v is not None})


def _linspace(start: Any, *args: Any, **kwargs: Any) -> Any:
    numbers: list[Any] = [x.item() if isinstance(x, Tensor) else x for x in (start, *args)]
    kwargs = {k: v for k, v in kwargs.items() if k == "dtype"}
    return Tensor.linspace(*numbers, **kwargs)


def _logspace(start: Any, *args: Any, **kwargs: Any) -> Any:
    numbers: list[Any] = [x.item() if isinstance(x, Tensor) else x for x in (start, *args)]
    kwargs = {k: v for k, v in kwargs.items() if k in ("dtype", "base")}
    return Tensor.logspace(*numbers, **kwargs)


def _affine_free(name: str) -> Adapter:
    return _on(name)


def _batch_norm(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    if x.ndim < 2:
        raise NotApplicableError("batch norm of a vector")
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    if training or mean is None:
        mean, var = x.mean(axes), x.var(axes, correction=0)
    return x.batchnorm(weight, bias, mean, (var + eps).rsqrt())


def _group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, eps: Any = 1e-5) -> Any:
    size = x.numel() // max(x.shape[0] * groups, 1)
    found = x.reshape(x.shape[0], groups, size).layernorm(-1, eps).reshape(x.shape)
    shape = (1, -1, *[1] * (x.ndim - 2))
    found = found if weight is None else found * weight.reshape(shape)
    return found if bias is None else found + bias.reshape(shape)


def _instance_norm(
    x: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None,
    bias: Any = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    if not use_input_stats:
        raise NotApplicableError("running statistics of instance norm")
    return _group_norm(x, x.shape[1], weight, bias, eps)


def _vector_norm(x: Any, *args: Any, **kwargs: Any) -> Any:
    options = dict(zip(("ord", "dim", "keepdim"), args, strict=False)) | kwargs
    kind = options.pop("dtype", None)
    x = x if kind is None else x.cast(kind)
    dim = options.get("dim")
    dim = None if dim is not None and not isinstance(dim, int) and not len(dim) else dim
    return x.vector_norm(options.get("ord", 2), dim, options.get("keepdim", False))


def _triangular(b: Any, a: Any, upper: bool, transpose: bool, unit: bool) -> Any:
    matrix = a._flipped if transpose else a
    upper = upper != transpose
    return matrix.solve_triangular(b, upper=upper, unitriangular=unit), a


def _old_svd(x: Any, some: bool) -> Any:
    if not some and x.shape[-1] != x.shape[-2]:
        raise NotApplicableError("the further columns of full matrices are free")
    u, s, v = x.svd()
    return u.abs(), s, v._flipped.abs()


def _one_hot(x: Any, num_classes: int = -1) -> Any:
    count = int(x.max().item()) + 1 if num_classes < 0 else num_classes
    return x.one_hot(count).cast(dtypes.int64)


def _pinv(x: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("atol") is not None or isinstance(kwargs.get("rtol"), Tensor) or args:
        raise NotApplicableError("tolerances of pinv that are tensors")
    return x.pinv(kwargs.get("rtol", kwargs.get("rcond")), kwargs.get("hermitian", False))


def _matrix_norm(x: Any, *args: Any, **kwargs: Any) -> Any:
    options = dict(zip(("ord", "dim", "keepdim"), args, strict=False)) | kwargs
    kind = options.pop("dtype", None)
    return (x if kind is None else x.cast(kind)).matrix_norm(**options)


def _pivoted(pivot: bool, function: Any) -> Any:
    if not pivot:
        raise NotApplicableError("LU without pivoting")
    return function()


def _searchsorted(x: Any, values: Any, out_int32: bool = False, **kwargs: Any) -> Any:
    if not isinstance(values, Tensor):
        raise NotApplicableError("a number to look for")
    found = x.searchsorted(values, **kwargs)
    return found.cast(dtypes.int32 if out_int32 else dtypes.int64)


def _stft(x: Any, **kwargs: Any) -> Any:
    kwargs.pop("return_complex", None)
    return x.stft(**kwargs)


def _narrow(x: Any, dim: int, start: Any, length: int) -> Any:
    return x.narrow(dim, int(start.item()) if isinstance(start, Tensor) else start, length)


def _spacing_gradient(x: Any, **kwargs: Any) -> Any:
    spacing = kwargs.get("spacing")
    return x.spacing_gradient(
        1.0 if spacing is None else spacing, kwargs.get("dim"), kwargs.get("edge_order", 1)
    )


ADAPTERS: dict[str, Adapter] = {
    "__getitem__": _index,
    "item": lambda x: x.item(),
    "allclose": _allclose,
    "equal": lambda x, y: x.equal(y),
    "max.reduction_with_dim": _reduced("max"),
    "min.reduction_with_dim": _reduced("min"),
    "max.binary": lambda x, y: x.maximum(y),
    "min.binary": lambda x, y: x.minimum(y),
    "var": _correction("var"), "std": _correction("std"),
    "var_mean": _correction("var_mean"), "std_mean": _correction("std_mean"),
    "nn.functional.embedding": _embedding,
    "nn.functional.embedding_bag": _embedding_bag,
    "norm": _norm, "linalg.norm": _linalg_norm,
    "flip": _dims("flip"),
    "meshgrid.list_of_tensors": lambda x, **kw: x[0].meshgrid(*x[1:], **kw),
    "stack": lambda x, *a, **kw: x[0].stack(*x[1:], dim=kw.get("dim", a[0] if a else 0)),
    "cat": lambda x, *a, **kw: x[0].cat(*x[1:], dim=kw.get("dim", a[0] if a else 0)),
    "hstack": lambda x: x[0].hstack(*x[1:]), "vstack": lambda x: x[0].vstack(*x[1:]),
    "dstack": lambda x: x[0].dstack(*x[1:]),
    "column_stack": lambda x: x[0].column_stack(*x[1:]),
    "block_diag": lambda x, *rest: x.block_diag(*rest),
    "broadcast_tensors": lambda x, *rest: x.broadcast_tensors(*rest),
    "cartesian_prod": lambda x, *rest: x.cartesian_prod(*rest),
    "einsum": lambda x, formula: Tensor.einsum(formula, *x),
    "linalg.multi_dot": lambda x: Tensor.multi_dot(x),
    "where": _where_sample,
    "to": _to,
    "arange": lambda *a, **kw: Tensor.arange(
        *[v for k, v in kw.items() if k in ("start", "end", "step")] if "end" in kw else a,
        **{k: v for k, v in kw.items() if k == "dtype"},
    ),
    "linspace": _linspace, "linspace.tensor_overload": _linspace,
    "logspace": _logspace, "logspace.tensor_overload": _logspace,
    **{f"atleast_{n}d": _each_of(f"atleast_{n}d") for n in (1, 2, 3)},
    "mode": _first_of("mode", 0),
    "topk": _topk, "kthvalue": _first_of("kthvalue", 0), "median": _on("median"),
    "repeat_interleave": _repeat_interleave,
    "nn.functional.linear": _linear,
    "nn.functional.layer_norm": _layer_norm, "nn.functional.rms_norm": _rms_norm,
    "nn.functional.batch_norm": _batch_norm, "nn.functional.group_norm": _group_norm,
    "nn.functional.instance_norm": _instance_norm,
    "nn.functional.cross_entropy": _cross_entropy, "nn.functional.nll_loss": _nll,
    "nn.functional.binary_cross_entropy": _bce("binary_crossentropy"),
    "nn.functional.binary_cross_entropy_with_logits": _bce("binary_crossentropy_logits"),
    "nn.functional.scaled_dot_product_attention": _attention,
    "nn.functional.pad.constant": _pad("constant"), "nn.functional.pad.reflect": _pad("reflect"),
    "nn.functional.pad.replicate": _pad("replicate"),
    "nn.functional.pad.replicate_negative": _pad("replicate"),
    "nn.functional.pad.circular": _pad("circular"),
    "constant_pad_nd": lambda x, pad, value=0: x.pad(list(pad), value=value),
    "nn.functional.upsample_bilinear": lambda x, size=None, scale_factor=None: x.interpolate(
        size, "bilinear", True, scale_factor
    ),
    "nn.functional.upsample_nearest": lambda x, size=None, scale_factor=None: x.interpolate(
        size, "nearest", False, scale_factor
    ),
    "grid_sampler_2d": lambda x, grid, mode, padding, aligned: x.grid_sample(
        grid, ("bilinear", "nearest", "bicubic")[mode],
        ("zeros", "border", "reflection")[padding], aligned,
    ),
    "grid_sampler_3d": lambda x, grid, mode, padding, aligned: x.grid_sample(
        grid, ("bilinear", "nearest", "bicubic")[mode],
        ("zeros", "border", "reflection")[padding], aligned,
    ),
    "nn.functional.triplet_margin_with_distance_loss": lambda x, p, n, **kw: (
        x.triplet_margin_with_distance_loss(
            p, n, **{k: v for k, v in kw.items() if k != "distance_function"}
        )
    ),
    "nn.functional.conv1d": _conv("conv1d", *_CONV),
    "nn.functional.conv2d": _conv("conv2d", *_CONV),
    "nn.functional.conv3d": _conv("conv3d", *_CONV),
    "nn.functional.conv_transpose1d": _conv("conv_transpose1d", *_CONV_TRANSPOSE),
    "nn.functional.conv_transpose2d": _conv("conv_transpose2d", *_CONV_TRANSPOSE),
    "nn.functional.conv_transpose3d": _conv("conv_transpose3d", *_CONV_TRANSPOSE),
    **{f"nn.functional.avg_pool{n}d": _pool(n, "avg") for n in (1, 2, 3)},
    **{f"nn.functional.max_pool{n}d": _pool(n, "max") for n in (1, 2, 3)},
    **{
        f"fft.{name}": _complex(name)
        for name in ("fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "irfft", "irfft2", "irfftn",
                     "hfft", "hfftn")
    },
    "fft.hfft2": lambda x, s=None, dim=(-2, -1), norm=None: _complex("hfftn")(x, s, dim, norm),
    "fft.ihfft2": lambda x, s=None, dim=(-2, -1), norm=None: x.ihfftn(s, dim, norm),
    **{
        f"signal.windows.{name}": _window(name)
        for name in ("bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine",
                     "hamming", "hann", "kaiser", "nuttall")
    },
    "signal.windows.general_hamming": lambda n, alpha=0.54, **kw: _window("hamming")(
        n, alpha=alpha, beta=1 - alpha, **kw
    ),
    "linalg.eigh": _eigh, "linalg.svd": _svd, "linalg.eigvalsh": _on("eigvalsh"),
    "linalg.slogdet": _on("slogdet"), "linalg.inv_ex": _on("inv"),
    "linalg.tensorsolve": lambda x, b, dims=None: x.tensorsolve(b, dims),
    "lu_unpack": lambda lu, pivots, *a, **kw: Tensor.lu_unpack(lu, pivots),
    "linalg.lu_solve": lambda lu, p, b, **kw: lu.lu_solve(p, b, **kw),
    "lu_solve": lambda b, lu, p: lu.lu_solve(p, b),
    "pinverse": _on("pinv"),
    "logdet": _on("logdet"),
    "polar": _on("mul"),
    "nn.functional.softmin.with_dtype": _on("softmin"),
    "special.polygamma.special_polygamma_n_0": lambda x, n: x.polygamma(n),
    "polygamma": lambda x, n: x.polygamma(n),
    "mvlgamma": lambda x, p: x.mvlgamma(p),
    "fill": lambda x, value: x.full_like(value),
    "tril_indices": lambda row, col, offset=0, dtype=dtypes.int64, **kw: (
        Tensor.tril_indices(row, col, offset).cast(dtype)
    ),
    "triu_indices": lambda row, col, offset=0, dtype=dtypes.int64, **kw: (
        Tensor.triu_indices(row, col, offset).cast(dtype)
    ),
    "new_full": lambda x, size, value, **kw: x.new_full(
        size, value, **{k: v for k, v in kw.items() if k == "dtype"}
    ),
    "masked_fill": lambda x, mask, value: x.masked_fill(mask, value),
    "round.decimals_0": lambda x, decimals: x.round(decimals),
    "round.decimals_3": lambda x, decimals: x.round(decimals),
    "round.decimals_neg_3": lambda x, decimals: x.round(decimals),
    "nonzero": lambda x, as_tuple=False: (
        tuple(x.reshape(x.shape or (1,)).nonzero().unbind(1)) if as_tuple else x.nonzero()
    ),
    "argwhere": lambda x: x.nonzero(),
    "corrcoef": lambda x: x.corrcoef(),
    "nn.functional.one_hot": _one_hot,
    "nn.functional.kl_div": lambda x, y, *a, **kw: x.kl_div(y, **kw),
    "nn.functional.threshold": _on("threshold"),
    "nn.functional.prelu": _on("prelu"),
    "unsqueeze_copy": _on("unsqueeze"), "squeeze_copy": _on("squeeze"), "t_copy": _on("t"),
    "permute_copy": _on("permute"), "transpose_copy": _on("transpose"),
    "expand_copy": _on("expand"), "narrow_copy": _narrow, "unbind_copy": _on("unbind"),
    "unfold_copy": _on("unfold"), "view_copy": _on("view"), "diagonal_copy": _on("diagonal"),
    "alias_copy": lambda x: x, "split_with_sizes_copy": _on("split_with_sizes"),
    "unsafe_chunk": _on("chunk"), "unsafe_split": _on("split"),
    "trapz": lambda y, x=None, **kw: y.trapezoid(x, **kw),
    "trapezoid": lambda y, x=None, **kw: y.trapezoid(x, **kw),
    "cumulative_trapezoid": lambda y, x=None, **kw: y.cumulative_trapezoid(x, **kw),
    "pairwise_distance": _on("pairwise_distance"),
    "linalg.vector_norm": _vector_norm,
    "linalg.matrix_rank.hermitian": lambda x, *a, **kw: x.matrix_rank(**kw),
    "linalg.pinv.hermitian": lambda x, **kw: x.pinv(hermitian=True),
    "linalg.pinv.singular": lambda a, b: (a.matmul(b._flipped)).pinv(),
    "linalg.vander": lambda x, N=None: x.vander(N, increasing=True),
    "linalg.tensorinv": lambda x, ind=2: x.tensorinv(ind),
    "cdist": lambda x, y, p=2.0, compute_mode=None: x.cdist(y, p),
    "linalg.pinv": _pinv,
    "linalg.matrix_norm": _matrix_norm,
    "lu": lambda x, *a: x.lu_factor(),
    "linalg.lu": lambda x, pivot=True: _pivoted(pivot, x.lu),
    "linalg.lu_factor": lambda x, pivot=True: _pivoted(pivot, x.lu_factor),
    "add": lambda x, y, alpha=1: x.add(y if alpha == 1 else y * alpha),
    "sub": lambda x, y, alpha=1: x.sub(y if alpha == 1 else y * alpha),
    "stft": _stft,
    "searchsorted": _searchsorted,
    "bucketize": lambda x, boundaries, out_int32=False, right=False: x.bucketize(
        boundaries, right
    ).cast(dtypes.int32 if out_int32 else dtypes.int64),
    "nn.functional.unfold": _on("im2col"),
    "nn.functional.ctc_loss": lambda x, *a, **kw: x.log_softmax(-1).ctc_loss(*a, **kw),
    "narrow": _narrow,
    "gradient": _spacing_gradient,
    "zero_": lambda x: x.clone().zero_(),
    "linalg.lstsq": lambda x, b, driver=None: x.lstsq(b),
    "linalg.lstsq.grad_oriented": lambda x, b, driver=None: x.lstsq(b),
    "svd": lambda x, some=True, compute_uv=True: _old_svd(x, some),
    "qr": lambda x, some=True: x.qr("reduced" if some else "complete"),
    "cholesky_solve": lambda b, low, upper=False: b.cholesky_solve(low, upper),
    "triangular_solve": lambda b, a, upper=True, transpose=False, unitriangular=False: (
        _triangular(b, a, upper, transpose, unitriangular)
    ),
}  # fmt: skip
