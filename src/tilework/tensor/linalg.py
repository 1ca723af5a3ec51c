"""Products of matrices and of any axes.

A product is a multiply and a REDUCE; small floats are multiplied and added in float32.
"""

from __future__ import annotations

import math
import string
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tilework import dtypes
from tilework.base.errors import ShapeError, UserError
from tilework.dtypes import DType, promote, sum_dtype
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import dims
from tilework.tensor.autocasting import narrowed
from tilework.tensor.creation import as_dtype
from tilework.tensor.reduce import Reduce
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from tilework.ir.types import Dim

T = TypeVar("T", bound="Linalg")

#: The letters that stand for axes 0, 1, ..., in the order that letters are sorted in.
_LETTERS = string.ascii_uppercase + string.ascii_lowercase


class Linalg(Reduce):
    """matmul, linear, einsum and their kin."""

    __slots__ = ()

    def _product_dtypes(self, other: Self, dtype: DType | str | None) -> tuple[DType, DType]:
        """The dtype to compute in, and that of the result."""
        common = promote(self.dtype, other.dtype)
        if dtype is not None:
            result = as_dtype(dtype)
            common = result if not common.is_float or result.bits > common.bits else common
        else:
            result = common if common.is_float else sum_dtype(common)
            common = result
        if common.is_float and common.bits < 32:
            return dtypes.float32, result
        return common, result

    def matmul(self, other: Self, reverse: bool = False, dtype: DType | str | None = None) -> Self:
        """The matrix product, over the last axis of this and the last but one of `other`.

        Args:
            other: a tensor of 1 axis (a vector) or more; leading axes broadcast.
            reverse: exchange the operands.
            dtype: of the result; by default integers give 64 bits.

        Shape: (..., m, k) @ (..., k, n) -> (..., m, n)

        Raises:
            ShapeError: the sizes of the summed axes differ, or an operand is a scalar.
        """
        x, y = (other, self) if reverse else (self, other)
        if not x.ndim or not y.ndim:
            raise ShapeError("matmul: an operand is a scalar", try_="multiply with *")
        inner = y._dims[-2] if y.ndim > 1 else y._dims[0]
        if x._dims[-1] != inner:
            raise ShapeError(
                "matmul: the summed sizes differ",
                got=f"{format_shape(x._dims)} @ {format_shape(y._dims)}",
                expected="(..., m, k) @ (..., k, n)",
            )
        if dtype is None:
            x, y = narrowed(x, y)
        compute, result = x._product_dtypes(y, dtype)
        a, b = x.cast(compute), y.cast(compute)
        if y.ndim > 1:
            a, b = a.unsqueeze(-2), b.transpose(-1, -2)
            if x.ndim > 1 and y.ndim > 2:
                b = b.unsqueeze(-3)
        a, b = a._together(b, "matmul")
        found = a.mul(b)._fold(Fold.ADD, (a.ndim - 1,), keepdim=False)
        return found.cast(result)

    def dot(self, other: Self, dtype: DType | str | None = None) -> Self:
        """Another name for `matmul`."""
        return self.matmul(other, dtype=dtype)

    def __matmul__(self, other: Self) -> Self:
        return self.matmul(other)

    def __rmatmul__(self, other: Self) -> Self:
        return self.matmul(self._other(other), reverse=True)

    def linear(
        self, weight: Self, bias: Self | None = None, dtype: DType | str | None = None
    ) -> Self:
        """self @ weight + bias; a weight of one axis is multiplied element by element.

        Shape: (..., in), weight (in, out), bias (out,) -> (..., out)
        """
        x = self if dtype is None else self.cast(dtype)
        found = x * weight if weight.ndim == 1 else x.matmul(weight)
        return found if bias is None else found + bias

    def outer(self, other: Self) -> Self:
        """All products of the elements of two vectors."""
        return self.unsqueeze(-1) * other.unsqueeze(0)

    @classmethod
    def einsum(cls, formula: Any, *operands: Any, dtype: DType | str | None = None) -> Self:
        """Sums of products by a formula such as "ij,jk->ik".

        Args:
            formula: one group of letters for each operand, and after "->" those that are kept in
                their order; without "->" the letters that appear once, in alphabetical order.
                "..." stands for any axes; a letter twice in one group takes the diagonal.
                Or the first tensor, if each is followed by a list of numbers of its axes.
            operands: tensors, one for each group.  More than two are contracted two at a time,
                those first whose product is smallest.
            dtype: of the result.

        Raises:
            ShapeError: the formula doesn't fit the operands.

        Example:
            >>> Tensor.einsum("ii->i", Tensor([[1, 2], [3, 4]])).tolist()
            [1, 4]
        """
        if not isinstance(formula, str):
            formula, operands = _formula_of([formula, *operands])
        tensors: list[Self] = []
        for operand in operands:
            # A tensor, or several.
            tensors.extend([operand] if isinstance(operand, cls) else list(operand))
        groups, output = _parse(formula, [each.ndim for each in tensors])
        aligned, letters = _diagonals(tensors, groups)
        order = output + [
            letter for letter in dict.fromkeys(chain.from_iterable(letters)) if letter not in output
        ]
        sizes = _sizes_by_letter(aligned, letters, formula)
        placed = [_place(each, own, order) for each, own in zip(aligned, letters, strict=True)]
        return _contract(placed, len(output), [sizes[letter] for letter in order], dtype)


def _formula_of(items: list[Any]) -> tuple[str, tuple[Any, ...]]:
    """The formula of tensors that are each followed by a list of numbers of its axes."""
    pairs = len(items) // 2
    groups = items[1 : 2 * pairs : 2] + items[2 * pairs :]
    if not all(isinstance(group, list | tuple) for group in groups) or not pairs:
        raise UserError(
            "einsum: each tensor needs a list of its axes behind it",
            got=[type(item).__name__ for item in items],
            expected="a formula, or tensors and lists in turn",
        )
    texts = ["".join([_letter_of(number) for number in group]) for group in groups]
    formula = ",".join(texts[:pairs])
    if len(texts) > pairs:
        formula += "->" + texts[-1]
    return formula, tuple(items[: 2 * pairs : 2])


def _letter_of(number: Any) -> str:
    if number is Ellipsis:
        return "..."
    if not hasattr(type(number), "__index__") or not 0 <= number < len(_LETTERS):
        raise UserError(
            "einsum: axes are numbered from 0 to 51", got=number, expected="a number, or ..."
        )
    return _LETTERS[number]


def _parse(formula: str, ndims: list[int]) -> tuple[list[list[str]], list[str]]:
    """The letters of each operand and of the output; "..." becomes letters of its own."""
    text = formula.replace(" ", "")
    left, arrow, right = text.partition("->")
    groups = left.split(",")
    if len(groups) != len(ndims):
        raise ShapeError(
            "einsum: the formula has another number of operands",
            got=f"{formula!r} with {len(ndims)} tensors",
        )
    most = 0
    for group, ndim in zip(groups, ndims, strict=True):
        named = len(group.replace("...", ""))
        if (named > ndim) if "..." in group else (named != ndim):
            raise ShapeError(
                "einsum: a group doesn't fit its tensor", got=f"{group!r} for {ndim} axes"
            )
        if "..." in group:
            most = max(most, ndim - named)
    used = set(text) - set(".,->")
    if unknown := used - set(string.ascii_letters):
        raise ShapeError("einsum: axes are named by letters", got=f"{sorted(unknown)}")
    free = [letter for letter in map(chr, range(0x100, 0x180)) if letter not in used][:most]
    split = []
    for group, ndim in zip(groups, ndims, strict=True):
        named = len(group.replace("...", ""))
        split.append(_letters(group, free[len(free) - (ndim - named) :] if ndim > named else []))
    if arrow:
        output = _letters(right, free if "..." in right else [])
    else:
        flat = [letter for group in split for letter in group]
        output = free + sorted({x for x in flat if flat.count(x) == 1 and x not in free})
    known = {letter for group in split for letter in group}
    if len(set(output)) != len(output) or not set(output) <= known:
        raise ShapeError(
            "einsum: each letter of the output must appear once, and in an operand", got=formula
        )
    return split, output


def _letters(group: str, rest: list[str]) -> list[str]:
    before, dots, after = group.partition("...")
    return [*before, *(rest if dots else []), *after]


def _diagonals(tensors: list[T], groups: list[list[str]]) -> tuple[list[T], list[list[str]]]:
    """Letters that appear twice in one group are replaced by the diagonal of their axes."""
    found: list[T] = []
    letters: list[list[str]] = []
    for tensor, group in zip(tensors, groups, strict=True):
        x, own = tensor, list(group)
        for letter in dict.fromkeys(group):
            while own.count(letter) > 1:
                first = own.index(letter)
                second = own.index(letter, first + 1)
                if x._dims[first] != x._dims[second]:
                    raise ShapeError(
                        f"einsum: the axes of {letter!r} have different sizes",
                        got=format_shape(x._dims),
                    )
                x = x.diagonal(0, first, second).movedim(-1, first)
                del own[second]
        found.append(x)
        letters.append(own)
    return found, letters


def _sizes_by_letter(tensors: list[T], letters: list[list[str]], formula: str) -> dict[str, Dim]:
    sizes: dict[str, Dim] = {}
    for tensor, own in zip(tensors, letters, strict=True):
        for letter, size in zip(own, tensor._dims, strict=True):
            known = sizes.setdefault(letter, size)
            if known == 1:
                sizes[letter] = size
            elif size != known and size != 1:
                raise ShapeError(
                    f"einsum: {letter!r} has two sizes",
                    got=" and ".join([format_shape(each._dims) for each in tensors]),
                    expected=f"shapes that fit {formula!r}",
                )
    return sizes


def _place(tensor: T, own: list[str], order: list[str]) -> T:
    """The axes of a tensor in the common order, with size 1 for letters that it lacks."""
    x = tensor.permute([own.index(letter) for letter in order if letter in own])
    sizes = iter(x.shape)
    return x.reshape([next(sizes) if letter in own else 1 for letter in order])


def _contract(placed: list[T], kept: int, sizes: list[Dim], dtype: DType | str | None) -> T:
    """Multiply, and add over the axes after the first `kept`."""
    if dtype is None and len(placed) > 1:
        placed = list(narrowed(*placed))
    common = placed[0]
    for other in placed[1:]:
        common = common.cast(promote(common.dtype, other.dtype))
    compute, result = common._product_dtypes(common, dtype)
    factors = [each.cast(compute) for each in placed]
    shape = list(sizes)
    while len(factors) > 2:
        factors = _contract_pair(factors, kept)
    for axis in range(kept, len(shape)):
        if all(each._dims[axis] == 1 for each in factors):
            shape[axis] = 1  # added over
    product = factors[0]
    for other in factors[1:]:
        product = product * other
    product = product._broadcast_to(tuple(shape), product._bindings, "einsum")
    axes = tuple(range(kept, len(shape)))
    return product._fold(Fold.ADD, axes, keepdim=False).cast(result)


def _contract_pair(factors: list[T], kept: int) -> list[T]:
    """The two whose product has the fewest elements become one, the first of equals.

    Axes after the first `kept` that no other factor has are added over.
    """
    pairs = combinations(range(len(factors)), 2)
    _, first, second = min((_elements_together(factors[i], factors[j]), i, j) for i, j in pairs)
    rest = [each for at, each in enumerate(factors) if at not in (first, second)]
    product = factors[first] * factors[second]
    done = [
        axis
        for axis in range(kept, product.ndim)
        if product._dims[axis] != 1 and all(other._dims[axis] == 1 for other in rest)
    ]
    if done:
        product = product._fold(Fold.ADD, tuple(done), keepdim=True)
    found = list(factors)
    found[first] = product
    del found[second]
    return found


def _elements_together(a: T, b: T) -> int:
    return math.prod(
        max(dims.greatest(i), dims.greatest(j)) for i, j in zip(a._dims, b._dims, strict=True)
    )
