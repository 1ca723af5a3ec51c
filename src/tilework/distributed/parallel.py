"""Layouts of a model's parameters: replicated, fully sharded, or each as it is said.

    distributed.replicate(get_parameters(model), devices)         # data parallel
    distributed.fully_shard(get_parameters(model), devices)       # each device has a part of each
    distributed.shard_parameters(get_state_dict(model), devices, {"up.weight": 0})

The training step stays what it was: inputs are sharded along their batch axis, and what gradients
and updates need is moved where they are computed.  Optimizers keep their state in the layout of
the parameter that it belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import UserError
from tilework.base.text import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tilework.tensor.tensor import Tensor


def replicate(parameters: Iterable[Tensor], devices: Sequence[str]) -> None:
    """Put all of each parameter on every device: for data-parallel training."""
    for parameter in parameters:
        parameter.shard_(devices)


def fully_shard(parameters: Iterable[Tensor], devices: Sequence[str]) -> None:
    """Split each parameter along its longest axis, so that no device holds all of one.

    Parameters without an axis are put on every device.  What a layer needs of the others is
    gathered where it is used, and gradients come back to where the parts are.
    """
    for parameter in parameters:
        sizes = parameter.shape
        longest = max(range(len(sizes)), key=lambda axis, sizes=sizes: sizes[axis], default=None)  # type: ignore[misc]
        parameter.shard_(devices, longest)


def shard_parameters(
    parameters: Mapping[str, Tensor], devices: Sequence[str], axes: Mapping[str, int | None]
) -> None:
    """Split named parameters along the axes that are given; the others go to every device.

    Args:
        parameters: by name, as `nn.state.get_state_dict` gives them.
        devices: where to.
        axes: the axis of each parameter that is split, by name; None puts it on every device.

    Raises:
        UserError: there is no parameter of a name.
    """
    unknown = [name for name in axes if name not in parameters]
    if unknown:
        raise UserError(
            f"shard: there is no parameter {unknown[0]!r}",
            got=unknown,
            try_=nearest(unknown[0], list(parameters)),
        )
    for name, parameter in parameters.items():
        parameter.shard_(devices, axes.get(name))
