"""The tensors that an object holds, by name."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from tilework.base.errors import ModelFileError, ShapeError, TileworkWarning, UserError
from tilework.tensor.tensor import Tensor


def get_state_dict(obj: Any, prefix: str = "", tensor_type: type = Tensor) -> dict[str, Tensor]:
    """All tensors that `obj` reaches through attributes, lists, tuples and dictionaries.

    Args:
        obj: a model, or any part of one.
        prefix: what names begin with.
        tensor_type: what counts as a tensor.

    Returns:
        The tensors by name: attributes and keys and positions joined by dots.

    Example:
        >>> from tilework import nn
        >>> sorted(get_state_dict(nn.Linear(2, 3)))
        ['bias', 'weight']

    Raises:
        UserError: a lazy layer was not called yet.
    """
    found: dict[str, Tensor] = {}
    stack: list[tuple[str, Any, tuple[int, ...]]] = [(prefix.strip("."), obj, ())]
    while stack:
        name, value, above = stack.pop()
        if isinstance(value, tensor_type):
            tensor: Any = value
            found[name] = tensor
            continue
        if id(value) in above:
            continue  # it holds itself
        if getattr(type(value), "is_without_parameters", False):
            raise UserError(
                f"{name or 'the layer'}: a lazy layer has no parameters before its first call",
                got=type(value).__name__,
                try_="calling the model once, with an input of the right sizes",
            )
        children = _children(value)
        below = (*above, id(value))
        for key, child in reversed(children):
            stack.append((f"{name}.{key}" if name else key, child, below))
    return found


def _children(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, str | bytes):
        return []
    if isinstance(value, Mapping):
        return [(str(key), child) for key, child in value.items()]
    if hasattr(value, "_asdict"):
        return list(value._asdict().items())
    if isinstance(value, list | tuple):
        return [(str(number), child) for number, child in enumerate(value)]
    if isinstance(value, type):
        return []
    attributes = getattr(value, "__dict__", None)
    return list(attributes.items()) if attributes is not None else []


def get_parameters(obj: Any) -> list[Tensor]:
    """All tensors that `obj` reaches; see `get_state_dict`."""
    return list(get_state_dict(obj).values())


def load_state_dict(
    model: Any,
    state_dict: Mapping[str, Tensor],
    strict: bool = True,
    verbose: bool = True,
    consume: bool = False,
    realize: bool = True,
) -> list[Tensor]:
    """Write tensors into a model's tensors of the same names.

    Args:
        model: what gets them.
        state_dict: names and values.
        strict: refuse a name that is missing.
        verbose: warn about names that the model lacks.
        consume: remove what was used from `state_dict`.
        realize: bring the values into memory now.

    Returns:
        The model's tensors that were written.

    Raises:
        ModelFileError: a name is missing.
        ShapeError: a value has another shape.
    """
    own = get_state_dict(model)
    missing = [name for name in own if name not in state_dict]
    if missing and strict:
        raise ModelFileError(
            "load_state_dict: names are missing",
            got=f"{len(missing)} missing: {_some(missing)}",
            expected="a value for each tensor of the model",
            try_="strict=False",
        )
    unused = [name for name in state_dict if name not in own]
    if unused and verbose:
        warnings.warn(
            f"load_state_dict: the model has no {_some(unused)}", TileworkWarning, stacklevel=2
        )
    written: list[Tensor] = []
    for name, target in own.items():
        if name not in state_dict:
            continue
        value = state_dict[name]
        if {value.shape, target.shape} == {(), (1,)}:  # a count is either, by the file's origin
            value = value.reshape(target.shape)
        if value.shape != target.shape:
            raise ShapeError(
                f"load_state_dict: {name} has another shape",
                got=f"{value.shape}",
                expected=f"{target.shape}",
            )
        with Tensor.no_grad():
            target.assign(value.to(target.device).cast(target.dtype))
        written.append(target)
        if consume and isinstance(state_dict, dict):
            del state_dict[name]
    if realize and written:
        Tensor.realize(*written)
    return written


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
