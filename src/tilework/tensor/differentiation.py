"""Gradients that a program states itself, and values that are computed again instead of kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework.base.errors import ShapeError, UserError
from tilework.tensor.core import TensorBase
from tilework.tensor.torch_names import TorchNames
from tilework.tensor.variable import format_shape
from tilework.tensor.version import history

if TYPE_CHECKING:
    from collections.abc import Callable


class Differentiation(TorchNames):
    """custom_function and checkpoint."""

    __slots__ = ()

    @staticmethod
    def custom_function(
        forward: Callable[..., Any], backward: Callable[..., Any]
    ) -> Callable[..., Any]:
        """A function of tensors with a gradient of its own.

        Args:
            forward: takes tensors and gives one.
            backward: takes the gradient of the result and the same tensors, and gives the gradient
                of each (None for none); one that is computed by tensor operations can be
                differentiated again.

        Example:
            >>> double = Tensor.custom_function(lambda x: x * 2, lambda g, x: g * 10)
            >>> x = Tensor([1.0])
            >>> double(x).sum().gradient(x)[0].tolist()
            [10.0]
        """

        def call(*inputs: Any) -> Any:
            with history(False):
                value = forward(*[each.detach() for each in inputs])

            def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
                found = backward(g, *sources)
                parts = found if isinstance(found, tuple | list) else (found,)
                return _checked(tuple(parts), sources)

            return value._with_gradient(rule, *inputs)

        return call

    @staticmethod
    def checkpoint(function: Callable[..., Any], *inputs: Any) -> Any:
        """`function(*inputs)`, which is computed again for its gradient: nothing inside is kept.

        Tensors with requires_grad that the function reads besides its inputs get their gradients
        too.  The function must give one tensor, and the same one each time: random numbers drawn
        inside would be others.

        Args:
            function: takes tensors and gives one.
            inputs: tensors.

        Example:
            >>> x = Tensor([1.0, 2.0])
            >>> y = Tensor.checkpoint(lambda x: (x * x).exp(), x)
            >>> y.sum().gradient(x)[0].shape
            (2,)
        """
        traced = function(*inputs)
        if not isinstance(traced, TensorBase):
            raise UserError(
                "checkpoint: the function must give one tensor", got=type(traced).__name__
            )
        others = _leaves_besides(traced, inputs)
        with history(False):
            value = traced.detach()

        def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            with history(True):
                again = function(*sources[: len(inputs)])
            with_slope = [each for each in sources if each.dtype.is_float]
            found = iter(again.gradient(*with_slope, gradient=g, materialize_grads=True))
            return tuple([next(found) if each.dtype.is_float else None for each in sources])

        return value._with_gradient(rule, *inputs, *others)


def _checked(parts: tuple[Any, ...], sources: tuple[Any, ...]) -> tuple[Any, ...]:
    """Gradients in the shapes and dtypes of what they are of."""
    if len(parts) != len(sources):
        raise UserError(
            "custom_function: needs a gradient for each tensor",
            got=len(parts),
            expected=f"{len(sources)}, None where there is none",
        )
    for part, source in zip(parts, sources, strict=True):
        if part is not None and part._dims != source._dims:
            raise ShapeError(
                "custom_function: a gradient has another shape than its tensor",
                got=format_shape(part._dims),
                expected=format_shape(source._dims),
            )
    return tuple(
        [
            None if part is None else part.cast(source.dtype)
            for part, source in zip(parts, sources, strict=True)
        ]
    )


def _leaves_besides(traced: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """Tensors with requires_grad that a value was computed from, without those of the inputs."""
    stop = {id(each._storage.version) for each in inputs}
    found: list[Any] = []
    seen: set[int] = set()
    stack = [traced._storage.version]
    while stack:
        version = stack.pop()
        if id(version) in seen or id(version) in stop:
            continue
        seen.add(id(version))
        for reference in [*[each for _, each in version.leaves or ()], version.owner]:
            tensor: Any = None if reference is None else reference()
            is_wanted = tensor is not None and tensor.dtype.is_float
            if is_wanted and tensor._wants_gradient is not False:
                found.append(tensor)
        stack.extend(version.sources)
    return list({id(each): each for each in found}.values())
