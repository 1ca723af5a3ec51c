"""Devices in a grid whose axes have names."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tilework.base.errors import ShapeError, UserError
from tilework.base.records import dataclass
from tilework.engine.device import Device
from tilework.runtime.group import split_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True, init=False)
class Mesh:
    """Devices in row-major order of a grid.

    Args:
        devices: their names, each once.
        sizes: of the axes of the grid; one axis with all devices unless given.
        names: of the axes of the grid.

    Raises:
        ShapeError: the grid has another number of places than there are devices.

    Example:
        >>> mesh = Mesh(("CPU:0", "CPU:1"), names=("data",))
        >>> mesh.axis_devices("data")
        (('CPU', 'CPU:1'),)
    """

    devices: tuple[str, ...]
    sizes: tuple[int, ...]
    names: tuple[str, ...]

    def __init__(
        self,
        devices: str | Sequence[str],
        sizes: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        found = split_name(Device.canonicalize(devices))
        shape = (len(found),) if sizes is None else tuple(sizes)
        labels = tuple(names) if names is not None else tuple(f"axis{n}" for n in range(len(shape)))
        if prod(shape) != len(found) or min(shape, default=0) < 1:
            raise ShapeError(
                "mesh: it has another number of places than there are devices",
                got=f"{shape} for {len(found)} devices",
            )
        if len(labels) != len(shape) or len(set(labels)) != len(labels):
            raise UserError(
                "mesh: each axis needs a name of its own", got=f"{labels} for sizes {shape}"
            )
        object.__setattr__(self, "devices", found)
        object.__setattr__(self, "sizes", shape)
        object.__setattr__(self, "names", labels)

    def shard(self, x: Tensor, axes: Sequence[str | None]) -> Tensor:
        """`x` over all devices of the mesh.

        Args:
            x: on one device or on several.
            axes: for each axis of `x` the axis of the mesh that splits it, or None.  Axes of the
                mesh that are not named hold replicas.

        Raises:
            ShapeError: there is another number of axes.
            UserError: an axis of the mesh is unknown, or named twice.
        """
        if len(axes) != x.ndim:
            raise ShapeError(
                "mesh: each axis of the tensor needs an axis of the mesh, or None",
                got=f"{tuple(axes)} for shape {x.shape}",
            )
        used = [name for name in axes if name is not None]
        unknown = [name for name in used if name not in self.names]
        if unknown or len(set(used)) != len(used):
            raise UserError(
                "mesh: an axis is unknown or named twice",
                got=used,
                expected=f"some of {self.names}",
            )
        split = [axes.index(name) if name in used else None for name in self.names]
        return x.shard(self.devices, split, self.sizes)

    def axis_devices(self, name: str) -> tuple[tuple[str, ...], ...]:
        """The lines of devices along an axis: those that a collective along it brings together.

        Raises:
            UserError: there is no such axis.
        """
        if name not in self.names:
            raise UserError("mesh: there is no such axis", got=name, expected=self.names)
        at = self.names.index(name)
        inner = prod(self.sizes[at + 1 :])
        size = self.sizes[at]
        lines = []
        for outer in range(prod(self.sizes[:at])):
            for place in range(inner):
                first = outer * size * inner + place
                lines.append(tuple([self.devices[first + n * inner] for n in range(size)]))
        return tuple(lines)
