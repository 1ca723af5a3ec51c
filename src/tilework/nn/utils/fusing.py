"""A layer and the batch norm behind it as one layer, for inference."""

from __future__ import annotations

import copy
from typing import Any

from tilework.tensor.tensor import Tensor


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Tensor, Tensor]:
    """Weight and bias of a convolution that does what a batch norm behind it did too.

    Args:
        conv_w: weight of the convolution.
        conv_b: its bias, or None.
        bn_rm: running mean of the norm.
        bn_rv: its running variance.
        bn_eps: what it adds to the variance.
        bn_w: its weight, or None.
        bn_b: its bias, or None.
        transpose: the convolution is a transposed one: its outputs are the second axis.

    Example:
        >>> one = Tensor([1.0])
        >>> weight, bias = fuse_conv_bn_weights(one.reshape(1, 1, 1), None, one, one, 0.0, one, one)
        >>> weight.item(), bias.item()
        (1.0, 0.0)
    """
    with Tensor.no_grad():
        scale = (bn_rv + bn_eps).rsqrt()
        if bn_w is not None:
            scale = scale * bn_w
        shape = [1] * conv_w.ndim
        shape[1 if transpose else 0] = -1
        if transpose and conv_w.shape[1] != scale.shape[0]:
            # Groups: the outputs of a group are the second axis, the groups lie along the first.
            groups = int(scale.shape[0]) // int(conv_w.shape[1])
            rest = conv_w.shape[2:]
            grouped = conv_w.reshape(groups, -1, conv_w.shape[1], *rest)
            spread = scale.reshape(groups, 1, -1, *[1] * len(rest))
            weight = (grouped * spread).reshape(conv_w.shape)
        else:
            weight = conv_w * scale.reshape(shape)
        bias = (-bn_rm if conv_b is None else conv_b - bn_rm) * scale
        if bn_b is not None:
            bias = bias + bn_b
        return weight.cast(conv_w.dtype).contiguous(), bias.cast(conv_w.dtype).contiguous()


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of a convolution that does what a batch norm behind it did too.

    Args:
        conv: the convolution.
        bn: a batch norm with running statistics.
        transpose: the convolution is a transposed one.

    Example:
        >>> from tilework import nn
        >>> conv, bn, x = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), Tensor.rand(1, 3, 5, 5)
        >>> bool(((fuse_conv_bn_eval(conv, bn)(x) - bn(conv(x))).abs() < 1e-5).all())
        True
    """
    fused = copy.copy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        conv.weight, conv.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias,
        transpose,
    )  # fmt: skip
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """`fuse_conv_bn_weights` of a fully connected layer."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """`fuse_conv_bn_eval` of a fully connected layer."""
    return fuse_conv_bn_eval(linear, bn)
