"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from tilework.base.errors import ShapeError, UserError
from tilework.base.integers import product
from tilework.tensor.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters in one vector.

    Args:
        parameters: any number of tensors, at least one.

    Raises:
        UserError: there are none.

    Example:
        >>> parameters_to_vector([Tensor([[1.0], [2.0]]), Tensor(3.0)]).tolist()
        [1.0, 2.0, 3.0]
    """
    parts = [each.reshape(-1) for each in parameters]
    if not parts:
        raise UserError("parameters_to_vector: there are no parameters")
    return Tensor.cat(*parts)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write the parts of a vector into parameters, in their order.

    Args:
        vec: as many elements as all parameters have.
        parameters: what is written.

    Raises:
        ShapeError: the number of elements is another one.

    Example:
        >>> a, b = Tensor([[0.0], [0.0]]), Tensor(0.0)
        >>> vector_to_parameters(Tensor([1.0, 2.0, 3.0]), [a, b])
        >>> a.tolist(), b.item()
        ([[1.0], [2.0]], 3.0)
    """
    found = list(parameters)
    counts = [product(each.shape) for each in found]
    if vec.shape != (sum(counts),):
        raise ShapeError(
            "vector_to_parameters: the vector has another length",
            got=f"shape {vec.shape}",
            expected=f"({sum(counts)},)",
        )
    with Tensor.no_grad():
        # What the vector holds now, whatever of it lies in the memory that is written.
        parts = vec.clone().split(counts) if counts else ()
        for each, part in zip(found, parts, strict=True):
            each.assign(part.reshape(each.shape).to(each.device).cast(each.dtype))
