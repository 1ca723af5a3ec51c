"""Tensors over several devices: split along axes, or whole on each of them.

    devices = ("CPU:0", "CPU:1")
    x = Tensor.rand(7, 4).shard(devices, axis=0)     # rows 0..3 on one device, 4..6 on the other
    w = Tensor.rand(4, 3).shard(devices)             # all of it on both
    (x @ w).axis                                     # 0: no device needs a row of another one

All operations mean what they mean on one device.  Where an operation needs elements of other
devices they are copied; what is copied is known before it runs (`distributed.plan_transfers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from tilework.base.errors import ShapeError, UserError
from tilework.engine.device import Device
from tilework.engine.sharing import check_can_share
from tilework.ir.node import make
from tilework.ir.ops import multi
from tilework.ir.ops.multi import Layout
from tilework.runtime.group import is_group, join_names, split_name
from tilework.schedule.shard import spec
from tilework.tensor.convolution import Convolution
from tilework.tensor.version import Version, merge_bindings

if TYPE_CHECKING:
    from tilework.ir.ops.multi import Box, Interval

Axes = int | None | Sequence[int | None]


class Sharding(Convolution):
    """shard, unshard, and which part is where."""

    __slots__ = ()

    def shard(
        self, devices: str | Sequence[str], axis: Axes = None, mesh: Sequence[int] | None = None
    ) -> Self:
        """This tensor over several devices.

        Args:
            devices: their names, each once.
            axis: the axis that is split, as evenly as its size allows; None puts all of it on each
                device.  With `mesh` one entry for each axis of the mesh.
            mesh: sizes of the mesh in which the devices stand, in row-major order; their product
                is the number of devices.

        Raises:
            ShapeError: there is no such axis, or the mesh has another number of places.
            UnsupportedError: a device cannot take part.

        Example:
            >>> x = Tensor([[1, 2], [3, 4], [5, 6]]).shard(("CPU:0", "CPU:1"), axis=0)
            >>> (x * 10).tolist()
            [[10, 20], [30, 40], [50, 60]]
        """
        names = split_name(Device.canonicalize(devices))
        layout = self._layout_over(names, axis, mesh)
        check_can_share(names)
        if len(names) == 1:
            return self.to(names[0])
        return self if layout == self._layout() else self._resharded(layout)

    def shard_(
        self, devices: str | Sequence[str], axis: Axes = None, mesh: Sequence[int] | None = None
    ) -> Self:
        """Spread this very tensor over several devices; the arguments are those of `shard`.

        It stays what it was to `backward` and to optimizers, and its gradient lies where it does.
        """
        return self._become(self._unlinked().shard(devices, axis, mesh))

    def shard_like(self, y: Self) -> Self:
        """This tensor where `y` is: split as `y` is if the shapes are equal, else whole on each."""
        layout = y._layout()
        if layout is None or self._dims != y._dims:
            return self.to(y.device)
        return self if layout == self._layout() else self._resharded(layout)

    def unshard(self, device: str | None = None) -> Self:
        """All of it on one device: `device`, or the first of those that it is on."""
        first = split_name(self._storage.version.device)[0]
        return self.to(first if device is None else device)

    def _assembled(self, others: Sequence[Self], axis: int) -> Self:
        """This tensor and others of other devices as the parts of one along `axis`."""
        parts = (self, *others)
        number = self._axis(axis, "assemble")
        names = [part._storage.version.device for part in parts]
        if any(map(is_group, names)) or len(set(names)) != len(names):
            raise UserError(
                "assemble: each part must be on one device, which no other part is on",
                got=", ".join(names),
            )
        check_can_share(names)
        boxes: list[Box] = []
        start = 0
        for part in parts:
            stop = start + part._fixed_size(number, "assemble")
            box: list[Interval] = [None] * part.ndim
            box[number] = (start, stop)
            boxes.append(tuple(box))
            start = stop
        if len(parts) == 1:
            return self
        whole = [
            spec.interval(*bounds, start) for bounds in [box[number] for box in boxes] if bounds
        ]
        boxes = [
            (*box[:number], cut, *box[number + 1 :]) for box, cut in zip(boxes, whole, strict=True)
        ]
        layout = Layout(tuple(names), tuple(boxes))
        version = Version(
            make(multi.UNSHARD, tuple([part.node for part in parts]), layout),
            join_names(names),
            multi.UNSHARD,
            layout,
            tuple([part._storage.version for part in parts]),
            tuple([part._chain for part in parts]),
            merge_bindings([part._live_bindings() for part in parts], "assemble"),
        )
        version.layout = layout
        return self._over(version)

    @property
    def axis(self) -> int | None:
        """The axis that is split between devices; None if none is, or several are."""
        layout = self._layout()
        return None if layout is None else spec.split_axis(layout)

    @property
    def layout(self) -> Layout | None:
        """Which part each device holds; None on one device."""
        names = split_name(self._storage.version.device)
        if len(names) == 1:
            return None
        return self._layout() or spec.replicated(names, self.ndim)

    def shards(self) -> tuple[Self, ...]:
        """The part of each device as a tensor there; nothing is copied between devices.

        Example:
            >>> x = Tensor([1, 2, 3]).shard(("CPU:0", "CPU:1"), axis=0)
            >>> [part.tolist() for part in x.shards()]
            [[1, 2], [3]]
        """
        layout = self.layout
        if layout is None:
            return (self,)
        shape = self._dims
        found = []
        for device, box in zip(layout.devices, layout.boxes, strict=True):
            bounds = [
                (0, size, 1) if cut is None else (*cut, 1)
                for cut, size in zip(box, shape, strict=True)
            ]
            part = self._cut(bounds)
            found.append(part._resharded(spec.replicated((device,), self.ndim)))
        return tuple(found)

    def _layout_over(
        self, names: tuple[str, ...], axis: Axes, mesh: Sequence[int] | None
    ) -> Layout:
        if mesh is None:
            if not (axis is None or hasattr(type(axis), "__index__")):
                raise ShapeError(
                    "shard: several axes need a mesh", got=f"axis {axis}",
                    try_="give the mesh of the devices, such as mesh=(2, 2)",
                )  # fmt: skip
            number = None if axis is None else self._axis(axis, "shard")  # type: ignore[arg-type]
            if number is not None and not self.ndim:
                raise ShapeError("shard: a scalar has no axis", got=f"axis {axis}")
            return spec.split(self._dims, names, number)
        sizes = tuple(mesh)
        wanted = tuple(axis) if isinstance(axis, Sequence) else (axis,) * len(sizes)
        total = 1
        for size in sizes:
            total *= size
        if total != len(names) or min(sizes, default=0) < 1:
            raise ShapeError(
                "shard: the mesh has another number of places than there are devices",
                got=f"mesh {sizes} for {len(names)} devices",
            )
        if len(wanted) != len(sizes):
            raise UserError(
                "shard: each axis of the mesh needs an axis of the tensor, or None",
                got=f"axes {wanted} for mesh {sizes}",
            )
        axes = [None if each is None else self._axis(each, "shard") for each in wanted]
        return spec.mesh_split(self._dims, names, sizes, axes)
