"""First values of parameters: each function writes into a tensor and returns it.

The names, the arguments and the distributions are those of `torch.nn.init`; the random numbers are
those of `Tensor.manual_seed`.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tilework.base.errors import ShapeError, UserError
from tilework.base.integers import product
from tilework.tensor.tensor import Tensor
from tilework.tensor.wrong_calls import tell

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_",
    "normal_", "ones_", "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_",
    "xavier_uniform_", "zeros_",
]  # fmt: skip

#: What a layer's output shrinks by in each function: its inverse.
_GAINS: Final = {
    **dict.fromkeys(("linear", "sigmoid"), 1.0),
    **{f"conv{kind}{n}d": 1.0 for kind in ("", "_transpose") for n in (1, 2, 3)},
    "tanh": 5 / 3,
    "relu": math.sqrt(2),
    "selu": 3 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """What weights are multiplied with so that a function behind them keeps the variance.

    Args:
        nonlinearity: "linear", "conv2d" and its kin, "sigmoid", "tanh", "relu", "leaky_relu" or
            "selu".
        param: the slope of "leaky_relu", 0.01 by default.

    Raises:
        UserError: the name is unknown, or the slope is no number.

    Example:
        >>> round(calculate_gain("leaky_relu", 0.2), 4)
        1.3868
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, int | float):
            raise UserError("calculate_gain: the slope is no number", got=repr(slope))
        return math.sqrt(2 / (1 + slope * slope))
    if nonlinearity not in _GAINS:
        raise UserError(
            "calculate_gain: unknown function",
            got=nonlinearity,
            expected=", ".join(sorted({*_GAINS, "leaky_relu"})),
        )
    return _GAINS[nonlinearity]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Numbers from [a, b), equally likely."""
    return _written(tensor, Tensor.uniform(*tensor.shape, low=a, high=b, **_like(tensor)))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Numbers from the normal distribution."""
    return _written(tensor, Tensor.normal(*tensor.shape, mean=mean, std=std, **_like(tensor)))


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Tensor:
    """Numbers from the part of the normal distribution that lies in [a, b].

    Args:
        tensor: what is written.
        mean: of the whole distribution.
        std: of the whole distribution.
        a: the least number.
        b: the greatest number.

    Raises:
        UserError: nothing lies between the bounds.

    Example:
        >>> drawn = trunc_normal_(Tensor.empty(1000), a=-1.0, b=0.5)
        >>> bool(((drawn >= -1.0) & (drawn <= 0.5)).all())
        True
    """
    if not a < b or std <= 0:
        raise UserError(
            "trunc_normal_: the bounds or the width make no sense",
            got=f"{a} to {b}, std {std}",
            expected="a < b and a positive std",
        )
    low, high = (math.erf((bound - mean) / (std * math.sqrt(2))) for bound in (a, b))
    drawn = Tensor.uniform(*tensor.shape, low=low, high=high, device=tensor.device)
    found = (drawn.erfinv() * (std * math.sqrt(2)) + mean).clamp(a, b)
    return _written(tensor, found.cast(tensor.dtype).clamp(a, b))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """The same number everywhere."""
    return _written(tensor, tensor.full_like(val))


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity, as far as the matrix reaches.

    Raises:
        ShapeError: that is no matrix.

    Example:
        >>> eye_(Tensor.empty(2, 3)).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    _check_axes(tensor, "eye_", 2, 2)
    return _written(tensor, Tensor.eye(*tensor.shape, **_like(tensor)))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Weights of a convolution that keeps its channels: 1 in the middle of the kernel.

    Args:
        tensor: weights of a convolution over one to three axes.
        groups: of the convolution.

    Raises:
        ShapeError: the weights have other axes, or don't divide into the groups.

    Example:
        >>> dirac_(Tensor.empty(2, 2, 3))[1].tolist()
        [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    _check_axes(tensor, "dirac_", 3, 5)
    out_channels, in_channels, *kernel = (int(size) for size in tensor.shape)
    if groups < 1 or out_channels % groups:
        raise ShapeError(
            "dirac_: the channels don't divide into the groups",
            got=f"{out_channels} channels, {groups} groups",
        )
    each = out_channels // groups
    one = Tensor.eye(each, in_channels, **_like(tensor)).repeat(groups, 1)
    middle = one.reshape(out_channels, in_channels, *[1] * len(kernel))
    pads = [(size // 2, size - 1 - size // 2) for size in kernel]
    if 0 in kernel:
        return tensor
    return _written(tensor, middle.pad([(0, 0), (0, 0), *pads]))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Weights by Glorot and Bengio (2010): the variance is 2 gain^2 / (inputs + outputs)."""
    bound = gain * math.sqrt(6 / max(sum(_fans(tensor, "xavier_uniform_")), 1))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """`xavier_uniform_` with numbers from the normal distribution."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / max(sum(_fans(tensor, "xavier_normal_")), 1)))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Weights by He and others (2015): a function behind them keeps the variance.

    Args:
        tensor: the weights.
        a: the slope, for "leaky_relu".
        mode: "fan_in" keeps the variance on the way forward, "fan_out" on the way back.
        nonlinearity: the function behind; see `calculate_gain`.

    Raises:
        ShapeError: the weights have less than two axes.
        UserError: the mode or the function is unknown.
    """
    std = _kaiming(tensor, a, mode, nonlinearity, "kaiming_uniform_")
    return uniform_(tensor, -math.sqrt(3) * std, math.sqrt(3) * std)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """`kaiming_uniform_` with numbers from the normal distribution."""
    return normal_(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity, "kaiming_normal_"))


def orthogonal_(tensor: Tensor, gain: float = 1) -> Tensor:
    """A random orthogonal matrix: rows, or columns if there are fewer of them, of length `gain`.

    Args:
        tensor: the weights; all axes from the second on are the columns.
        gain: what the matrix is multiplied with.

    Raises:
        ShapeError: the weights have less than two axes.

    Example:
        >>> w = orthogonal_(Tensor.empty(3, 5))
        >>> bool(((w @ w.T - Tensor.eye(3)).abs() < 1e-5).all())
        True
    """
    _check_axes(tensor, "orthogonal_", 2)
    if 0 in tensor.shape:
        return tensor
    rows, columns = int(tensor.shape[0]), product(tensor.shape[1:])
    flat = Tensor.randn(max(rows, columns), min(rows, columns), device=tensor.device)
    q, r = flat.qr()
    # The signs of r's diagonal make all orthogonal matrices equally likely.
    q = q * r.diagonal().sign()
    found = q.T if rows < columns else q
    return _written(tensor, (found * gain).reshape(tensor.shape).cast(tensor.dtype))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """Numbers from the normal distribution, but for a share of zeros in each column.

    Args:
        tensor: a matrix.
        sparsity: the share of zeros, rounded up to a whole number of rows.
        std: of the other elements.

    Raises:
        ShapeError: that is no matrix.
        UserError: the share is not between 0 and 1.

    Example:
        >>> sparse_(Tensor.empty(4, 3), 0.5).ne(0).sum(0).tolist()
        [2, 2, 2]
    """
    _check_axes(tensor, "sparse_", 2, 2)
    if not 0 <= sparsity <= 1:
        raise UserError("sparse_: this is no share", got=sparsity, expected="0 to 1")
    rows = int(tensor.shape[0])
    order = Tensor.rand(*tensor.shape, device=tensor.device).argsort(0).argsort(0)
    values = Tensor.normal(*tensor.shape, std=std, **_like(tensor))
    return _written(tensor, (order < math.ceil(sparsity * rows)).where(0.0, values))


def _written(tensor: Tensor, value: Tensor) -> Tensor:
    with Tensor.no_grad():
        return tensor.assign(value)


def _like(tensor: Tensor) -> dict[str, Any]:
    return {"dtype": tensor.dtype, "device": tensor.device}


def _check_axes(tensor: Tensor, what: str, least: int, most: int | None = None) -> None:
    if tensor.ndim < least or (most is not None and tensor.ndim > most):
        raise ShapeError(
            f"{what}: the tensor has other axes",
            got=f"shape {tensor.shape}",
            expected=f"{least} axes" + ("" if most == least else f" to {most or 'any number'}"),
        )


def _fans(tensor: Tensor, what: str) -> tuple[int, int]:
    """How many inputs an output has, and how many outputs an input."""
    _check_axes(tensor, what, 2)
    taps = product(tensor.shape[2:])
    return int(tensor.shape[1]) * taps, int(tensor.shape[0]) * taps


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str, what: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise UserError(f"{what}: unknown mode", got=mode, expected="fan_in or fan_out")
    fan = _fans(tensor, what)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


tell(__name__, __all__)
