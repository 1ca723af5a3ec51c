"""What is said where a complex number comes in: they are pairs of real ones on a last axis."""

from __future__ import annotations

from tilework.base.errors import DTypeError


def refused(what: str, got: object) -> DTypeError:
    """The error for a complex number, array or dtype at a door of tensors.

    Args:
        what: the operation that it was given to.
        got: how the message names it.
    """
    return DTypeError(
        f"{what}: complex numbers are kept as pairs of real ones",
        got=got,
        expected="a last axis of size 2 with the real and the imaginary parts",
        try_="numpy.stack([z.real, z.imag], -1), torch.view_as_real(z) or re.complex(im)",
    )


def is_number(value: object) -> bool:
    """Whether this is a complex number of Python or NumPy."""
    return isinstance(value, complex) or type(value).__name__ == "complex64"


def is_named(dtype: object) -> bool:
    """Whether this is, or names, a complex dtype of whatever library."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
    last = name.rpartition(".")[2]
    return last.startswith("complex") or last in ("cfloat", "cdouble", "chalf")
