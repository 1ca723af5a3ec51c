"""Functions made of functions: gradients, products with Jacobians, Hessians, and maps over rows.

They have the names of `torch.func` and `jax`, and take functions of tensors, or of tuples, lists
and dictionaries of them.  A function may use other tensors too; those count as constants.

Example:
    >>> cubes = lambda x: (x * x * x).sum()
    >>> grad(cubes)(Tensor([1.0, 2.0])).tolist()
    [3.0, 12.0]
    >>> hessian(cubes)(Tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.nn.mapping import vmap
from tilework.tensor.signature import flatten, rebuild
from tilework.tensor.tensor import Tensor
from tilework.tensor.version import history
from tilework.tensor.wrong_calls import describe, tell

__all__ = [
    "grad", "grad_and_value", "hessian", "hvp", "jacfwd", "jacobian", "jacrev", "jvp",
    "value_and_grad", "vjp", "vmap",
]  # fmt: skip

ArgNums = int | tuple[int, ...]


class _Inputs:
    """Some arguments of a call as values of their own, which gradients are taken by.

    Args:
        args: of the call.
        argnums: which of them.
        what: who asks.

    Raises:
        UserError: there is no such argument.
        DTypeError: one holds something else than tensors of floats.
    """

    def __init__(self, args: Sequence[Any], argnums: ArgNums, what: str) -> None:
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        if wrong := [each for each in numbers if not -len(args) <= each < len(args)]:
            raise UserError(
                f"{what}: there is no such argument", got=wrong[0], expected=f"0 to {len(args) - 1}"
            )
        self._is_one = isinstance(argnums, int)
        self._flat = flatten([args[each] for each in numbers], what)
        if self._flat.values or self._flat.variables:
            raise DTypeError(
                f"{what}: an argument is no tensor",
                got=describe([*self._flat.values, *self._flat.variables][0]),
                expected="tensors, or containers of them",
            )
        tensors: list[Any] = self._flat.tensors
        if wrong := [each for each in tensors if not each.dtype.is_float]:
            raise DTypeError(
                f"{what}: there are no gradients by integers",
                got=describe(wrong[0]),
                expected="floats",
            )
        self.tensors: list[Tensor] = [each._apply(None) for each in tensors]
        self.args = list(args)
        for number, own in zip(numbers, self._packed(self.tensors), strict=True):
            self.args[number] = own

    def _packed(self, tensors: Sequence[Any]) -> Any:
        return rebuild(self._flat.tree, tensors.__getitem__, [])

    def like(self, tensors: Sequence[Any]) -> Any:
        """Tensors in the containers that the arguments had."""
        found = self._packed(tensors)
        return found[0] if self._is_one else tuple(found)


def _tensor_of(value: Any, what: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise DTypeError(f"{what}: the function gave no tensor", got=describe(value))
    return value


def _gradients(value: Tensor, inputs: _Inputs, weight: Tensor | None = None) -> list[Tensor]:
    """Gradients of a value by all inputs, zeros where it does not depend on one."""
    return value.gradient(*inputs.tensors, gradient=weight, materialize_grads=True)


def value_and_grad(
    func: Callable[..., Any], argnums: ArgNums = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """A function that gives what `func` gives, and its gradient, in JAX's order.

    Args:
        func: gives one number as a tensor; with `has_aux` a pair of that and anything else.
        argnums: which arguments the gradient is taken by; several give a tuple.
        has_aux: `func` gives something besides, which comes along.

    Returns:
        A function of the same arguments that gives (value, gradient), or, with `has_aux`,
        ((value, the rest), gradient).

    Example:
        >>> value, slope = value_and_grad(lambda x: (x * x).sum())(Tensor([3.0]))
        >>> value.item(), slope.tolist()
        (9.0, [6.0])
    """

    def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        with history(True):
            inputs = _Inputs(args, argnums, "grad")
            found = func(*inputs.args, **kwargs)
            rest: Any = None
            if has_aux:
                if not isinstance(found, tuple) or len(found) != 2:
                    raise UserError(
                        "grad: with has_aux the function must give a pair", got=describe(found)
                    )
                found, rest = found
            value = _tensor_of(found, "grad")
            if value.numel() != 1:
                raise ShapeError(
                    "grad: the function must give one number",
                    got=value.shape,
                    try_="jacrev, or vjp",
                )
            slopes = inputs.like(_gradients(value.reshape(()), inputs))
        return ((value, rest) if has_aux else value), slopes

    return call


def grad(
    func: Callable[..., Any], argnums: ArgNums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of `func`; with `has_aux` a pair of it and the rest.

    Arguments as of `value_and_grad`.

    Example:
        >>> grad(grad(lambda x: x * x * x))(Tensor(2.0)).item()
        12.0
    """
    both = value_and_grad(func, argnums, has_aux)

    def call(*args: Any, **kwargs: Any) -> Any:
        value, slopes = both(*args, **kwargs)
        return (slopes, value[1]) if has_aux else slopes

    return call


def grad_and_value(
    func: Callable[..., Any], argnums: ArgNums = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """`value_and_grad` in PyTorch's order: (gradient, value), or (gradient, (value, the rest))."""
    both = value_and_grad(func, argnums, has_aux)

    def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        value, slopes = both(*args, **kwargs)
        return slopes, value

    return call


def vjp(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """What `func` gives, and a function of a cotangent: its product with the Jacobian.

    Args:
        func: gives a tensor, or containers of them.
        primals: its arguments.

    Returns:
        The value, and a function that takes tensors in its containers and shapes, and gives a
        tuple with a gradient for each argument.

    Example:
        >>> value, pull = vjp(lambda x: x * x, Tensor([1.0, 2.0]))
        >>> pull(Tensor([1.0, 10.0]))[0].tolist()
        [2.0, 40.0]
    """
    with history(True):
        inputs = _Inputs(primals, tuple(range(len(primals))), "vjp")
        found = func(*inputs.args)
        outputs = flatten(found, "vjp")
        if outputs.values or not outputs.tensors:
            raise DTypeError("vjp: the function gave no tensor", got=describe(found))
        values: list[Any] = list(outputs.tensors)

    def pull(cotangent: Any) -> tuple[Any, ...]:
        given: list[Any] = list(flatten(cotangent, "vjp").tensors)
        _same_shapes(given, outputs.tensors, "vjp: a cotangent")
        with history(True):
            # Not of a weighted sum: what is given may itself depend on the arguments.
            rows = [
                _gradients(value, inputs, weight)
                for value, weight in zip(values, given, strict=True)
            ]
            slopes: tuple[Any, ...] = inputs.like(
                [functools.reduce(Tensor.add, parts) for parts in zip(*rows, strict=True)]
            )
        return slopes

    return found, pull


def jvp(func: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """What `func` gives, and how it changes along `tangents`: the Jacobian times them.

    Args:
        func: gives a tensor, or containers of them.
        primals: its arguments, a tuple.
        tangents: the directions, in the same containers and shapes.

    Returns:
        A pair: the value, and its change, in the same containers.

    Example:
        >>> jvp(lambda x: x * x, (Tensor([1.0, 2.0]),), (Tensor([1.0, 1.0]),))[1].tolist()
        [2.0, 4.0]
    """
    with history(True):
        inputs = _Inputs(primals, tuple(range(len(primals))), "jvp")
        directions: list[Any] = list(flatten(list(tangents), "jvp").tensors)
        _same_shapes(directions, inputs.tensors, "jvp: a tangent")
        found = func(*inputs.args)
        outputs = flatten(found, "jvp")
        if outputs.values or not outputs.tensors:
            raise DTypeError("jvp: the function gave no tensor", got=describe(found))
        values: list[Any] = list(outputs.tensors)
        # The product with the transposed Jacobian is linear in its weights: its own gradient by
        # them is the product with the Jacobian.
        weights = [each.zeros_like()._apply(None) for each in values]
        pulled = _gradients(_weighted(values, weights), inputs)
        total = _weighted(pulled, directions)
        changes = total.gradient(*weights, materialize_grads=True)
    return found, rebuild(outputs.tree, changes.__getitem__, [])


def jacrev(func: Callable[..., Any], argnums: ArgNums = 0) -> Callable[..., Any]:
    """A function that gives the Jacobian of `func`, one row after the other.

    Args:
        func: gives a tensor.
        argnums: which arguments it is taken by; several give a tuple.

    Returns:
        A function of the same arguments that gives, for each tensor, one of the shape
        (*shape of the value, *shape of the argument).

    Example:
        >>> jacrev(lambda x: x * x)(Tensor([1.0, 2.0])).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        with history(True):
            inputs = _Inputs(args, argnums, "jacrev")
            value = _tensor_of(func(*inputs.args, **kwargs), "jacrev")
            flat, shape = value.reshape(-1), value.shape
            count = int(flat.shape[0])
            rows = [_gradients(flat[number], inputs) for number in range(count)]
            found = []
            for number, each in enumerate(inputs.tensors):
                parts = [row[number] for row in rows]
                whole = parts[0].stack(*parts[1:]) if parts else each.zeros_like()[None][:0]
                found.append(whole.reshape(*shape, *each.shape))
            return inputs.like(found)

    return call


def jacfwd(func: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """`jacrev`, one column after the other: cheaper where the value has more elements.

    Args:
        func: gives a tensor.
        argnums: which argument, one tensor, it is taken by.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        def of_one(x: Tensor) -> Tensor:
            given = list(args)
            given[argnums] = x
            return _tensor_of(func(*given, **kwargs), "jacfwd")

        at = _tensor_of(args[argnums], "jacfwd")
        count = int(at.numel())
        units = Tensor.eye(count, dtype=at.dtype, device=at.device)
        columns = [
            jvp(of_one, (at,), (units[number].reshape(at.shape),))[1] for number in range(count)
        ]
        if not columns:
            return jacrev(of_one)(at)
        whole = columns[0].stack(*columns[1:], dim=-1)
        return whole.reshape(*columns[0].shape, *at.shape)

    return call


def jacobian(func: Callable[..., Any], inputs: Any) -> Any:
    """The Jacobian of `func` at `inputs`, as `torch.autograd.functional.jacobian` gives it.

    Args:
        func: gives a tensor.
        inputs: a tensor, or a tuple of the arguments, which gives a tuple.
    """
    if isinstance(inputs, tuple):
        return jacrev(func, tuple(range(len(inputs))))(*inputs)
    return jacrev(func)(inputs)


def hessian(func: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """A function that gives the matrix of second derivatives of `func`, which gives one number.

    Args:
        func: gives one number as a tensor.
        argnums: which argument, one tensor, they are taken by.

    Returns:
        A function that gives a tensor of the shape (*shape of the argument, twice).
    """
    return jacrev(grad(func, argnums), argnums)


def hvp(func: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The gradient of `func`, and its Hessian times `tangents`, without the Hessian itself.

    Args:
        func: gives one number as a tensor.
        primals: its arguments, a tuple.
        tangents: the directions, in the same shapes.

    Example:
        >>> cubes = lambda x: (x * x * x).sum()
        >>> hvp(cubes, (Tensor([1.0, 2.0]),), (Tensor([1.0, 1.0]),))[1][0].tolist()
        [6.0, 12.0]
    """
    return jvp(grad(func, tuple(range(len(primals)))), primals, tangents)


def _weighted(values: Sequence[Any], weights: Sequence[Any]) -> Tensor:
    """The sum of all products of values with their weights."""
    parts = [(value * weight).sum() for value, weight in zip(values, weights, strict=True)]
    total: Tensor = functools.reduce(Tensor.add, parts)
    return total


def _same_shapes(given: Sequence[Any], wanted: Sequence[Any], what: str) -> None:
    found = [each.shape for each in given]
    expected = [each.shape for each in wanted]
    if found != expected:
        raise ShapeError(f"{what} has another shape than its value", got=found, expected=expected)


tell(__name__, __all__)
