"""Normalisation and attention; statistics of small floats are computed in float32."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tilework.base import settings
from tilework.base.errors import ShapeError, UserError
from tilework.ir.ops.tensor import Fold
from tilework.tensor.autocasting import autocast, narrowed
from tilework.tensor.random import Random
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.dtypes import DType


class Functional(Random):
    """layernorm, batchnorm, scaled_dot_product_attention and their kin."""

    __slots__ = ()

    def sequential(self, ll: Sequence[Callable[[Self], Self]]) -> Self:
        """The functions (or layers) applied one after the other."""
        x = self
        for function in ll:
            x = function(x)
        return x

    # --- normalisation -----------------------------------------------------------------------

    def layernorm(self, axis: int | tuple[int, ...] = -1, eps: float = 1e-5) -> Self:
        """Mean 0 and variance 1 along `axis`."""
        x = self._as_float()
        axes = x._axes(axis, "layernorm")
        wide = x._wide()
        centered = wide - wide.mean(axes, keepdim=True)
        variance = centered.square().mean(axes, keepdim=True)
        return (centered * (variance + eps).rsqrt()).cast(x.dtype)

    def rms_norm(self, axis: int | tuple[int, ...] = -1, eps: float = 1e-5) -> Self:
        """Divided by the root of the mean square along `axis`."""
        x = self._as_float()
        wide = x._wide()
        return (wide * (wide.square().mean(axis, keepdim=True) + eps).rsqrt()).cast(x.dtype)

    def batchnorm(
        self,
        weight: Self | None,
        bias: Self | None,
        mean: Self,
        invstd: Self,
        axis: int | tuple[int, ...] = 1,
    ) -> Self:
        """(self - mean) * invstd * weight + bias, each given along `axis`.

        Args:
            weight: a factor, or None.
            bias: a summand, or None.
            mean: what is subtracted.
            invstd: 1 / sqrt(variance + eps).
            axis: the axis (or axes) that the other tensors have.
        """
        axes = self._axes(axis, "batchnorm")
        shape = [size if number in axes else 1 for number, size in enumerate(self.shape)]
        wanted = math.prod(size for number, size in enumerate(self.shape) if number in axes)
        for name, given in (("mean", mean), ("weight", weight), ("bias", bias)):
            if given is not None and given.numel() != wanted:
                raise ShapeError(
                    f"batchnorm: the {name} has another size than the input's axis {axis}",
                    got=f"{given.shape} for an input of {self.shape}",
                    expected=f"{wanted} elements",
                )
        x = self._wide() - mean.reshape(shape)
        if weight is not None:
            x = x * weight.reshape(shape)
        scale = invstd.reshape(shape) if invstd.ndim == len(axes) else invstd
        x = x * scale
        if bias is not None:
            x = x + bias.reshape(shape)
        return x.cast(self.dtype) if self.dtype.is_float else x

    # --- attention ---------------------------------------------------------------------------

    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        enable_gqa: bool = False,
        scale: float | None = None,
    ) -> Self:
        """softmax(self @ key^T * scale + mask) @ value.

        Args:
            key: what queries are compared with.
            value: what is mixed.
            attn_mask: bool (True takes part) or a summand; a row that nothing takes part in is 0.
            dropout_p: probability of dropping a weight while training.
            is_causal: position i sees positions up to i only.
            enable_gqa: key and value have fewer heads, each used by several of the queries.
            scale: 1 / sqrt(e) by default.

        Shape: self (..., l, e), key (..., s, e), value (..., s, v) -> (..., l, v)
        """
        if settings.current().autocast:
            narrow = narrowed(self, key, value)
            with autocast(None):  # scores and weights stay wide
                found: Self = narrow[0].scaled_dot_product_attention(
                    *narrow[1:], attn_mask, dropout_p, is_causal, enable_gqa, scale
                )
            return found
        query, keys, values = self._wide(), key._wide(), value._wide()
        _check_attention(query, keys, values)
        if enable_gqa:
            times = query._fixed_size(-3, "attention") // keys._fixed_size(-3, "attention")
            keys, values = keys.repeat_interleave(times, -3), values.repeat_interleave(times, -3)
        factor = 1 / math.sqrt(query._fixed_size(-1, "attention")) if scale is None else scale
        products = query.matmul(keys.transpose(-2, -1))
        if self.dtype is not query.dtype:
            # Their gradients are factors of products too, like the weights below.
            products = products._with_gradient(_rounded_to(self.dtype), products)
        scores = products * factor
        if is_causal:
            if attn_mask is not None:
                raise UserError("scaled_dot_product_attention: both attn_mask and is_causal")
            row, column = scores._positions(scores.ndim - 2), scores._positions(scores.ndim - 1)
            weights = (column <= row).where(scores, -math.inf).softmax(-1)
        elif attn_mask is not None:
            if attn_mask.dtype.is_bool:
                scores = attn_mask.where(scores, -math.inf)
            else:
                scores = scores + attn_mask
            # A row that nothing takes part in: powers of -inf and a total of 0, divided by 1.
            last = (scores.ndim - 1,)
            most = scores._safe_max(last)
            raised = (scores - most.eq(-math.inf).where(0.0, most)).exp()
            total = raised._fold(Fold.ADD, last, keepdim=True)
            weights = raised / total.eq(0.0).where(1.0, total)
        else:
            weights = scores.softmax(-1)
        # Small floats: weights are rounded to their dtype, which matrix units need, sums are not.
        rounded = weights.dropout(dropout_p).cast(self.dtype)._wide()
        return rounded.matmul(values).cast(self.dtype)


def _check_attention(query: Any, keys: Any, values: Any) -> None:
    """See that scores and weights can be computed; heads are matched as those of products are.

    Raises:
        ShapeError: the last axes do not fit.
    """
    shapes = [x._dims for x in (query, keys, values)]
    if min(map(len, shapes)) < 2 or (shapes[0][-1], shapes[1][-2]) != (
        shapes[1][-1],
        shapes[2][-2],
    ):
        raise ShapeError(
            "scaled_dot_product_attention: queries, keys and values don't fit",
            got=", ".join([format_shape(shape) for shape in shapes]),
            expected="(..., l, e), (..., s, e) and (..., s, v)",
        )


def _rounded_to(dtype: DType) -> Callable[[tuple[Any, ...], Any], tuple[Any, ...]]:
    """The rule of a value that stays, whose gradient is rounded to `dtype`."""

    def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
        return (g.cast(dtype).cast(g.dtype),)

    return rule
