"""Results of several tensors, whose parts have PyTorch's names.

They are tuples: they are unpacked, indexed and compared as such, and captured functions give them
back as what they are.

Example:
    >>> found = Tensor([3, 1, 2]).sort()
    >>> found.values.tolist(), found.indices.tolist()
    ([1, 2, 3], [1, 2, 0])
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class ValuesAndIndices(NamedTuple, Generic[T]):
    """Elements, and where they stood along an axis: of sort, topk, max, median and their kin."""

    values: T
    indices: T


class Extremes(NamedTuple, Generic[T]):
    """The least and the greatest elements, of aminmax."""

    min: T
    max: T


class MantissaAndExponent(NamedTuple, Generic[T]):
    """The parts of frexp."""

    mantissa: T
    exponent: T


class Histogram(NamedTuple, Generic[T]):
    """How many elements each interval has, and where the intervals end."""

    hist: T
    bin_edges: T


class HistogramOfPoints(NamedTuple, Generic[T]):
    """How many points each box has, and where along each axis the boxes end."""

    hist: T
    bin_edges: tuple[T, ...]


class QR(NamedTuple, Generic[T]):
    """Orthonormal columns, and an upper triangular matrix."""

    Q: T
    R: T


class SVD(NamedTuple, Generic[T]):
    """Left singular vectors in columns, singular values, right ones in rows."""

    U: T
    S: T
    Vh: T


class Spectrum(NamedTuple, Generic[T]):
    """Eigenvalues, and eigenvectors in columns."""

    eigenvalues: T
    eigenvectors: T


class SignAndLog(NamedTuple, Generic[T]):
    """The sign of a determinant, and the logarithm of its magnitude."""

    sign: T
    logabsdet: T


class LU(NamedTuple, Generic[T]):
    """A permutation, a lower and an upper triangular matrix."""

    P: T
    L: T
    U: T


class PackedLU(NamedTuple, Generic[T]):
    """Both triangular matrices in one, and the rows that were exchanged."""

    LU: T
    pivots: T


class CheckedLU(NamedTuple, Generic[T]):
    """`PackedLU`, and which pivot is 0."""

    LU: T
    pivots: T
    info: T


class CheckedCholesky(NamedTuple, Generic[T]):
    """A Cholesky factor, and which minor is not positive."""

    L: T
    info: T


class CheckedInverse(NamedTuple, Generic[T]):
    """An inverse, and which pivot is 0."""

    inverse: T
    info: T


class CheckedSolution(NamedTuple, Generic[T]):
    """A solution, and which pivot is 0."""

    result: T
    info: T
