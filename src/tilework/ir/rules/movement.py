"""Rules of movement ops (TENSOR): neighbours merge, and what moves nothing goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework.ir.node import make
from tilework.ir.ops.math import CONST, ConstAttrs
from tilework.ir.ops.tensor import (
    EXPAND,
    FLIP,
    PAD,
    PERMUTE,
    RESHAPE,
    SHRINK,
    AxesAttrs,
    PadAttrs,
    ShrinkAttrs,
)
from tilework.ir.pattern import Pat, RuleSet, Var
from tilework.ir.symbolic import dims

if TYPE_CHECKING:
    from tilework.ir.node import Node

MOVEMENT = RuleSet("movement")


@MOVEMENT.rule((RESHAPE, EXPAND, PERMUTE, SHRINK, FLIP), Var("c", CONST))
def move_literal(node: Node, c: Node) -> Node | None:
    """reshape(c), expand(c), permute(c), shrink(c), flip(c)  ->  the literal in the new shape"""
    return CONST(attrs=ConstAttrs(c.attrs.bits, c.attrs.dtype, node.shape))


@MOVEMENT.rule((RESHAPE, EXPAND), Var("x"))
def same_shape(node: Node, x: Node) -> Node | None:
    """reshape(x) and expand(x) to the shape of x  ->  x"""
    return x if node.shape == x.shape else None


@MOVEMENT.rule(RESHAPE, Pat(RESHAPE, Var("x")))
def reshape_twice(node: Node, x: Node) -> Node | None:
    """reshape(reshape(x))  ->  reshape(x)

    Keeps: the row-major order, which neither changes.
    """
    return RESHAPE(x, attrs=node.attrs)


@MOVEMENT.rule(EXPAND, Pat(EXPAND, Var("x")))
def expand_twice(node: Node, x: Node) -> Node | None:
    """expand(expand(x))  ->  expand(x)"""
    return EXPAND(x, attrs=node.attrs)


@MOVEMENT.rule(PERMUTE, Var("x"))
def permute_nothing(node: Node, x: Node) -> Node | None:
    """permute(x) by the axes 0, 1, 2, ...  ->  x"""
    return x if node.attrs.axes == tuple(range(len(node.attrs.axes))) else None


@MOVEMENT.rule(PERMUTE, Pat(PERMUTE, Var("x"), name="inner"))
def permute_twice(node: Node, inner: Node, x: Node) -> Node | None:
    """permute(permute(x))  ->  permute(x)"""
    axes = tuple([inner.attrs.axes[axis] for axis in node.attrs.axes])
    return PERMUTE(x, attrs=AxesAttrs(axes))


@MOVEMENT.rule(FLIP, Var("x"))
def flip_nothing(node: Node, x: Node) -> Node | None:
    """flip(x) along no axis, or along axes of size 1 alone  ->  x"""
    return x if all(x.shape[axis] == 1 for axis in node.attrs.axes) else None


@MOVEMENT.rule(FLIP, Pat(FLIP, Var("x"), name="inner"))
def flip_twice(node: Node, inner: Node, x: Node) -> Node | None:
    """flip(flip(x))  ->  flip(x) along the axes that only one of them mirrors"""
    axes = sorted(set(node.attrs.axes) ^ set(inner.attrs.axes))
    return FLIP(x, attrs=AxesAttrs(tuple(axes)))


@MOVEMENT.rule(PAD, Var("x"))
def pad_nothing(node: Node, x: Node) -> Node | None:
    """pad(x) by no zeros  ->  x"""
    return x if all(low == 0 and high == 0 for low, high in node.attrs.pads) else None


@MOVEMENT.rule(PAD, Pat(PAD, Var("x"), name="inner"))
def pad_twice(node: Node, inner: Node, x: Node) -> Node | None:
    """pad(pad(x))  ->  pad(x) by the sums"""
    pads = tuple(
        [
            (dims.add(a, c), dims.add(b, d))
            for (a, b), (c, d) in zip(node.attrs.pads, inner.attrs.pads, strict=True)
        ]
    )
    return _of_same_type(make(PAD, (x,), PadAttrs(pads)), node)


@MOVEMENT.rule(SHRINK, Var("x"))
def shrink_nothing(node: Node, x: Node) -> Node | None:
    """shrink(x) to all of x  ->  x"""
    whole = all(
        start == 0 and stop == size and step == 1
        for (start, stop, step), size in zip(node.attrs.bounds, x.shape, strict=True)
    )
    return x if whole else None


@MOVEMENT.rule(SHRINK, Pat(SHRINK, Var("x"), name="inner"))
def shrink_twice(node: Node, inner: Node, x: Node) -> Node | None:
    """shrink(shrink(x))  ->  shrink(x)

    Keeps: element i of the outer is element start + i * step of the inner.
    """
    merged: list[Any] = []
    for outer, (start, _, step), size in zip(
        node.attrs.bounds, inner.attrs.bounds, node.shape, strict=True
    ):
        first = dims.add(start, dims.mul(outer[0], step))
        stride = outer[2] * step
        last = dims.add(first, dims.mul(dims.sub(size, 1), stride))
        end = dims.add(last, 1)
        if isinstance(size, int) and size == 0:
            first = end = 0
        elif outer[2] == 1 and step == 1:
            end = dims.add(start, outer[1])
        merged.append((first, end, stride))
    return _of_same_type(make(SHRINK, (x,), ShrinkAttrs(tuple(merged))), node)


def _of_same_type(merged: Node, node: Node) -> Node | None:
    """`merged`, unless a symbolic size of it is not proven to be the same."""
    return merged if merged.type is node.type else None
