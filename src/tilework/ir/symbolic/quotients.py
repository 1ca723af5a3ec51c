"""Quotients and remainders of sums of index arithmetic, for numbers and for symbolic sizes."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from tilework.ir.build import const_index
from tilework.ir.node import make
from tilework.ir.ops import math
from tilework.ir.symbolic.bounds import bounds
from tilework.ir.symbolic.sums import (
    Terms,
    accumulate,
    add,
    factors_of,
    fits,
    from_terms,
    is_exact,
    is_within,
    mul,
    proven_less,
    scale,
    sum_bounds,
    terms,
    value_of,
)

if TYPE_CHECKING:
    from tilework.ir.node import Node


def idiv(a: Node, b: Node) -> Node:
    """a // b, rounded towards minus infinity."""
    size = value_of(b)
    if size is None:
        return _symbolic_idiv(a, b)
    if size == 1:
        return a
    if size <= 0 or not is_exact(a):
        return make(math.IDIV, (a, b), None)
    low, high = bounds(a)
    if low // size == high // size:
        return const_index(low // size)
    constant, total = terms(a)
    whole = {term: c // size for term, c in total.items() if c % size == 0}
    rest = {term: c for term, c in total.items() if c % size}
    quotient, remainder = divmod(constant, size)
    if is_within(remainder, rest, size):
        return from_terms(quotient, whole)
    if not fits(remainder, rest):
        return make(math.IDIV, (a, b), None)
    return add(from_terms(quotient, whole), _idiv_rest(remainder, rest, size))


def _reduced(constant: int, total: Terms, size: int) -> tuple[int, Node, int, Terms] | None:
    """Find g with sum = g * x + y, 0 <= y < g and g | size: (g, x, constant and terms of y)."""
    for g in sorted({gcd(c, size) for c in total.values()}, reverse=True):
        if g <= 1:
            continue
        whole = {term: c // g for term, c in total.items() if c % g == 0}
        rest = {term: c for term, c in total.items() if c % g}
        quotient, remainder = divmod(constant, g)
        if whole and is_within(remainder, rest, g):
            return g, from_terms(quotient, whole), remainder, rest
    return None


def _idiv_rest(constant: int, total: Terms, size: int) -> Node:
    found = _reduced(constant, total, size)
    if found is not None:
        g, x, _, _ = found
        return idiv(x, const_index(size // g))
    if constant == 0 and len(total) == 1:
        ((term, factor),) = total.items()
        inner = value_of(term.src[1]) if factor == 1 and term.op is math.IDIV else None
        if inner is not None and inner > 0:
            return idiv(term.src[0], const_index(inner * size))
    return make(math.IDIV, (from_terms(constant, total), const_index(size)), None)


def mod(a: Node, b: Node) -> Node:
    """a % b, with the sign of b."""
    size = value_of(b)
    if size is None:
        return _symbolic_mod(a, b)
    if size == 1:
        return const_index(0)
    if size <= 0 or not is_exact(a):
        return make(math.MOD, (a, b), None)
    constant, total = terms(a)
    rest = {term: c for term, c in total.items() if c % size}
    remainder = constant % size
    if not fits(remainder, rest):
        return make(math.MOD, (a, b), None)
    low, high = sum_bounds(remainder, rest)
    if low // size == high // size:
        return from_terms(remainder - (low // size) * size, rest)
    found = _reduced(remainder, rest, size)
    if found is not None:
        g, x, y_constant, y = found
        return add(scale(mod(x, const_index(size // g)), g), from_terms(y_constant, y))
    return make(math.MOD, (from_terms(remainder, rest), const_index(size)), None)


def _by_factor(total: Terms, factor: Node) -> tuple[Terms, Terms]:
    """Split terms into those with `factor` (divided by it) and the others."""
    whole: Terms = {}
    rest: Terms = {}
    for term, c in total.items():
        parts = factors_of(term)
        if factor in parts:
            parts.remove(factor)
            product = const_index(1)
            for part in parts:
                product = mul(product, part)
            constant, inner = terms(product)
            if constant:
                rest_key = const_index(1)
                whole[rest_key] = whole.get(rest_key, 0) + constant * c
            for inner_term, d in inner.items():
                accumulate(whole, inner_term, d * c)
        else:
            rest[term] = c
    return whole, rest


def _split_by(a: Node, b: Node) -> tuple[Node, Node]:
    """(x, y) with a = x * b + y, taking into x every term that has b as a factor."""
    constant, total = terms(a)
    whole, rest = _by_factor(total, b)
    extra = whole.pop(const_index(1), 0)
    return from_terms(extra, whole), from_terms(constant, rest)


def _symbolic_idiv(a: Node, b: Node) -> Node:
    x, y = _split_by(a, b)
    if is_exact(a) and bounds(b)[0] > 0 and bounds(y)[0] >= 0 and proven_less(y, b):
        return x
    return make(math.IDIV, (a, b), None)


def _symbolic_mod(a: Node, b: Node) -> Node:
    _, y = _split_by(a, b)
    if is_exact(a) and bounds(b)[0] > 0 and bounds(y)[0] >= 0 and proven_less(y, b):
        return y
    return make(math.MOD, (a, b), None)
