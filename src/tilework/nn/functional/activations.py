"""Functions of single elements, and distributions over an axis.

Each gives the shape of its input, but for `glu`, which halves an axis.  With `inplace` the input
gets the values and is returned.
"""

from __future__ import annotations

import warnings

from tilework.base.errors import TileworkWarning
from tilework.dtypes import DType
from tilework.tensor.tensor import Tensor


def put(x: Tensor, found: Tensor, inplace: bool) -> Tensor:
    """What a function gives: a value, or its input with the value written into it."""
    return x.assign(found) if inplace else found


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """The greater of each element and 0."""
    return put(input, input.relu(), inplace)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Each element cut to [0, 6]."""
    return put(input, input.relu6(), inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where positive, else alpha * (exp(x) - 1)."""
    return put(input, input.elu(alpha), inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where positive, else alpha * (exp(x / alpha) - 1)."""
    return put(input, input.celu(alpha), inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`elu` scaled so that mean 0 and variance 1 are kept."""
    return put(input, input.selu(), inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where positive, else x times a slope."""
    return put(input, input.leaky_relu(negative_slope), inplace)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`leaky_relu` with a slope for all, or for each channel."""
    return input.prelu(weight)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x)."""
    return put(input, input.silu(), inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x))."""
    return put(input, input.mish(), inplace)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution function of x, or its approximation "tanh"."""
    return input.gelu(approximate)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return input.sigmoid()


def logsigmoid(input: Tensor) -> Tensor:
    """The logarithm of `sigmoid`."""
    return input.logsigmoid()


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return input.tanh()


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return input.tanhshrink()


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return input.softsign()


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold."""
    return input.softplus(beta, threshold)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * relu6(x + 3) / 6."""
    return put(input, input.hardswish(), inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6."""
    return put(input, input.hardsigmoid(), inplace)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Each element cut to [min_val, max_val]."""
    return put(input, input.hardtanh(min_val, max_val), inplace)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """0 for magnitudes up to lambd, else x."""
    return input.hardshrink(lambd)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, at most to 0."""
    return input.softshrink(lambd)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where it is above the threshold, else the value."""
    return put(input, input.threshold(threshold, value), inplace)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half times `sigmoid` of the second."""
    return input.glu(dim)


def softmax(input: Tensor, dim: int | None = None, *, dtype: DType | str | None = None) -> Tensor:
    """exp(x), divided by its sum along `dim`.

    Args:
        input: any number of axes.
        dim: the axis; without one that of the channels, with a warning.
        dtype: what is computed in.

    Example:
        >>> softmax(Tensor([1.0, 1.0]), dim=0).tolist()
        [0.5, 0.5]
    """
    return input.softmax(chosen_axis(input) if dim is None else dim, dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, *, dtype: DType | str | None = None
) -> Tensor:
    """The logarithm of `softmax`."""
    return input.log_softmax(chosen_axis(input) if dim is None else dim, dtype)


def softmin(input: Tensor, dim: int | None = None, *, dtype: DType | str | None = None) -> Tensor:
    """`softmax` of -x."""
    return input.softmin(chosen_axis(input) if dim is None else dim, dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, *, dim: int = -1
) -> Tensor:
    """A draw of a category from logits, which can be differentiated; see the method."""
    return logits.gumbel_softmax(tau, hard, dim)


def rrelu(
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Negative elements times a slope, drawn from [lower, upper) when training."""
    return put(input, input.rrelu(lower, upper, training), inplace)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element 0 with probability `p`, else divided by 1 - p."""
    return put(input, input.dropout(p, training), inplace)


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """`dropout` of whole channels: (n, c, l) or (c, l)."""
    return put(input, input.dropout1d(p, training), inplace)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """`dropout` of whole channels: (n, c, h, w) or (c, h, w)."""
    return put(input, input.dropout2d(p, training), inplace)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """`dropout` of whole channels: (n, c, d, h, w) or (c, d, h, w)."""
    return put(input, input.dropout3d(p, training), inplace)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout after `selu`, which keeps mean and variance."""
    return put(input, input.alpha_dropout(p, training), inplace)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels, axis 1."""
    return put(input, input.feature_alpha_dropout(p, training), inplace)


def relu_(input: Tensor) -> Tensor:
    """`relu`, written into its input."""
    return relu(input, inplace=True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu`, written into its input."""
    return elu(input, alpha, inplace=True)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu`, written into its input."""
    return celu(input, alpha, inplace=True)


def selu_(input: Tensor) -> Tensor:
    """`selu`, written into its input."""
    return selu(input, inplace=True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu`, written into its input."""
    return leaky_relu(input, negative_slope, inplace=True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh`, written into its input."""
    return hardtanh(input, min_val, max_val, inplace=True)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold`, written into its input."""
    return put(input, input.threshold(threshold, value), True)


def rrelu_(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> Tensor:
    """`rrelu`, written into its input."""
    return rrelu(input, lower, upper, training, inplace=True)


def chosen_axis(x: Tensor) -> int:
    """The axis that PyTorch takes where none is given; said aloud, as it depends on `x`.

    The warning names the line of the caller's caller.
    """
    axis = 0 if x.ndim in (0, 1, 3) else 1
    warnings.warn(
        f"softmax without an axis takes axis {axis} of {x.ndim}; give dim=...",
        TileworkWarning,
        stacklevel=3,
    )
    return axis
