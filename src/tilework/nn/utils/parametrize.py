"""Parameters that are computed from others whenever they are read.

A layer stays what it is, an object with attributes; one of them becomes a property that computes.
What it is computed from are the parameters: `layer.parametrizations`, under PyTorch's names, so
that state dictionaries fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilework.base.errors import UserError
from tilework.tensor.tensor import Tensor
from tilework.tensor.wrong_calls import tell

#: The attribute of a class that holds the class a layer had before.
_BEFORE: Final = "_class_before_parametrizations"


class Parametrized:
    """What one attribute is computed from: `original` (or `original0`...), and by what: `0`, `1`...

    Args:
        value: what the attribute is now.
        parametrization: what computes it; see `register_parametrization`.
    """

    def __init__(self, value: Tensor, parametrization: Any) -> None:
        inverse = getattr(parametrization, "right_inverse", None)
        with Tensor.no_grad():
            found = value if inverse is None else inverse(value)
            originals = found if isinstance(found, tuple) else (found,)
            kept = [each.detach().clone()._owned(value.requires_grad) for each in originals]
        self._count = len(kept) if isinstance(found, tuple) else 0
        for name, each in zip(self._names(), kept, strict=True):
            setattr(self, name, each.realize())
        self._steps = 0
        self.append(parametrization)

    def _names(self) -> list[str]:
        return [f"original{n}" for n in range(self._count)] if self._count else ["original"]

    def append(self, parametrization: Any) -> None:
        """Compute one more step."""
        setattr(self, str(self._steps), parametrization)
        self._steps += 1

    def __call__(self) -> Tensor:
        """The value of the attribute."""
        value: Any = getattr(self, "0")(*[getattr(self, name) for name in self._names()])
        for step in range(1, self._steps):
            value = getattr(self, str(step))(value)
        found: Tensor = value
        return found


def register_parametrization(
    module: Any, tensor_name: str, parametrization: Callable[..., Tensor]
) -> Any:
    """Compute an attribute of a layer from what it is now.

    Args:
        module: any object with a tensor as an attribute.
        tensor_name: the attribute.
        parametrization: a function of the parameters that gives the attribute.  Its method
            `right_inverse`, if it has one, gives the parameters (one tensor, or a tuple) from a
            value; without it the value itself is the parameter.

    Returns:
        The layer.

    Raises:
        UserError: there is no such tensor.

    Example:
        >>> from tilework import nn
        >>> layer = register_parametrization(nn.Linear(2, 2), "weight", Tensor.exp)
        >>> layer.parametrizations["weight"].original.assign(Tensor.zeros(2, 2))[0].tolist()
        [0.0, 0.0]
        >>> layer.weight.tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """
    if is_parametrized(module, tensor_name):
        held: Parametrized = module.parametrizations[tensor_name]
        held.append(parametrization)
        return module
    value = getattr(module, "__dict__", {}).get(tensor_name)
    if not isinstance(value, Tensor):
        raise UserError(
            "parametrization: the layer has no such tensor",
            got=f"{type(module).__name__}.{tensor_name}",
            expected="the name of a tensor",
        )
    held = Parametrized(value, parametrization)
    if not is_parametrized(module):
        module.parametrizations = {}
    module.parametrizations[tensor_name] = held
    del module.__dict__[tensor_name]
    _rebuild(module)
    return module


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Make a computed attribute a tensor of its own again.

    Args:
        module: the layer.
        tensor_name: the attribute.
        leave_parametrized: keep the computed value; else what it was computed from.

    Returns:
        The layer.

    Raises:
        UserError: the attribute is not computed, or it has several originals, none of which can
            take its place.

    Example:
        >>> from tilework import nn
        >>> layer = register_parametrization(nn.Linear(2, 2), "weight", Tensor.exp)
        >>> type(remove_parametrizations(layer, "weight")).__name__
        'Linear'
    """
    if not is_parametrized(module, tensor_name):
        raise UserError(
            "parametrization: the attribute is not computed",
            got=f"{type(module).__name__}.{tensor_name}",
        )
    held: Parametrized = module.parametrizations[tensor_name]
    if not leave_parametrized and held._count > 1:
        raise UserError(
            "parametrization: several tensors can't take the place of one",
            got=f"{held._count} originals",
            try_="leave_parametrized=True",
        )
    first = getattr(held, held._names()[0])
    with Tensor.no_grad():
        value = first
        if leave_parametrized:
            value = held().detach().clone()._owned(first.requires_grad)
    del module.parametrizations[tensor_name]
    _rebuild(module)
    module.__dict__[tensor_name] = value
    if not module.parametrizations:
        del module.parametrizations
    return module


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Whether an attribute of a layer (or any of them) is computed."""
    held = getattr(module, "__dict__", {}).get("parametrizations")
    if not held or not hasattr(type(module), _BEFORE):
        return False
    return tensor_name is None or tensor_name in held


def _rebuild(module: Any) -> None:
    """Give a layer the class whose properties are what is computed now."""
    plain = getattr(type(module), _BEFORE, type(module))
    names = tuple(module.parametrizations)
    if not names:
        module.__class__ = plain
        return
    members: dict[str, Any] = {name: _computed(name) for name in names}
    members |= {_BEFORE: plain, "__module__": plain.__module__, "__doc__": plain.__doc__}
    module.__class__ = type(f"Parametrized{plain.__name__}", (plain,), members)


def _computed(name: str) -> property:
    def get(module: Any) -> Tensor:
        held: Parametrized = module.parametrizations[name]
        return held()

    return property(get)


tell(__name__, ("register_parametrization", "remove_parametrizations", "is_parametrized"))
