"""The base of `Tensor`: a storage seen through a chain of movement ops, and how ops apply."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any, Self

from tilework.base.errors import AliasError, DTypeError, ShapeError, UserError
from tilework.engine.device import Device
from tilework.ir.node import make
from tilework.ir.ops import memory, multi, tensor
from tilework.ir.symbolic import dims
from tilework.runtime.group import is_group, join_names, split_name
from tilework.schedule.shard import spec
from tilework.schedule.shard.propagate import layout_after
from tilework.tensor import observe, realize
from tilework.tensor.variable import (
    Size,
    as_size,
    evaluate,
    format_dim,
    format_shape,
)
from tilework.tensor.version import (
    NO_VIEW,
    Chain,
    CustomGradient,
    Storage,
    Version,
    apply_chain,
    can_merge,
    layout_through,
    merge_bindings,
    records_history,
    write_node,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Attrs, Node, OpDef
    from tilework.ir.types import Shape, Type


class TensorBase:
    """A storage seen through movement ops; the families of methods are built upon it.

    Immutable but for its storage: a write puts a new version there, which every view of the same
    storage sees.  Not thread-safe as a whole: two threads must not write one storage at once.
    """

    __slots__ = (
        "__weakref__", "_bindings", "_chain", "_grad", "_packed", "_seen_from", "_seen_node",
        "_storage", "_type", "_wants_gradient",
    )  # fmt: skip

    _storage: Storage
    _chain: Chain
    _type: Type
    _bindings: Mapping[str, int] | None
    _wants_gradient: bool | None
    _grad: Self | None
    _seen_from: Node | None
    _seen_node: Node | None
    _packed: tuple[Any, DType]  # of packed dtypes alone; see `PackedTensor`

    # --- making tensors ----------------------------------------------------------------------

    def _set(
        self,
        storage: Storage,
        chain: Chain,
        type_: Type,
        bindings: Mapping[str, int] | None = None,
    ) -> Self:
        self._storage = storage
        self._chain = chain
        self._type = type_
        self._bindings = bindings
        self._wants_gradient = None
        self._grad = None
        self._seen_from = None
        self._seen_node = None
        return self

    @classmethod
    def _over(cls, version: Version) -> Self:
        """A tensor with a storage of its own that holds `version`."""
        made = cls.__new__(cls)
        return made._set(Storage(version), NO_VIEW, version.node.type, version.bindings)

    @classmethod
    def _from_node(
        cls,
        node: Node,
        device: str | Sequence[str] | None = None,
        bindings: Mapping[str, int] | None = None,
    ) -> Self:
        """A tensor made by an expression that reads no other tensor."""
        version = Version(node, Device.canonicalize(device), bindings=bindings)
        return cls._over(version)

    def _seen(
        self, op: OpDef, attrs: Attrs | None, bindings: Mapping[str, int] | None = None
    ) -> Self:
        """A view of this tensor: the same storage through one more movement op."""
        chain = self._chain
        base = self._storage.version.node
        if chain and op is tensor.RESHAPE and chain[-1][0] is tensor.RESHAPE:
            chain = (*chain[:-1], (op, attrs))
            node = apply_chain(base, chain)
        else:
            chain = (*chain, (op, attrs))
            node = make(op, (self.node,), attrs)
        if bindings is not None:
            bindings = merge_bindings((self._live_bindings(), bindings), op.name)
        else:
            bindings = self._live_bindings()
        made = type(self).__new__(type(self))
        made._set(self._storage, chain, node.type, bindings)
        made._seen_from = base
        made._seen_node = node
        return made

    def _apply(self, op: OpDef | None, *others: TensorBase, attrs: Attrs | None = None) -> Self:
        """The value of `op` on this and the other tensors, whose types fit already.

        None as the op takes this tensor as it is seen, as a value of its own.
        """
        first = self._storage.version
        device = first.device
        sources = [first]
        nodes = [self.node if self._chain else first.node]
        has_views = self._chain is not NO_VIEW
        has_bindings = self._bindings is not None
        for operand in others:
            source = operand._storage.version
            if source.device != device:
                raise _other_device(op, (self, *others))
            sources.append(source)
            if operand._chain is NO_VIEW:
                nodes.append(source.node)
            else:
                has_views = True
                nodes.append(operand.node)
            has_bindings = has_bindings or operand._bindings is not None
        node = nodes[0] if op is None else make(op, tuple(nodes), attrs)
        operands: tuple[TensorBase, ...] = (self, *others)
        version = Version(
            node,
            device,
            op,
            attrs,
            tuple(sources),
            tuple([operand._chain for operand in operands]) if has_views else None,
            merge_bindings([operand._live_bindings() for operand in operands], node.op.name)
            if has_bindings
            else None,
        )
        if is_group(device):
            layouts = [operand._layout() for operand in operands]
            version.layout = layouts[0] if op is None else layout_after(node, layouts)
        made = type(self).__new__(type(self))
        return made._set(Storage(version), NO_VIEW, node.type, version.bindings)

    def _with_gradient(self, rule: Any, *sources: TensorBase) -> Self:
        """This value with a gradient of its own: `rule(sources, g)` gives those of the sources."""
        return self._apply(None, *sources, attrs=CustomGradient(rule))

    def _live_bindings(self) -> Mapping[str, int] | None:
        """The values of variables that this tensor still depends on."""
        if self._bindings is None or self._chain or self._storage.version.buffer is None:
            return self._bindings
        return self._storage.version.bindings

    # --- what it is --------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        """The TENSOR expression that this tensor is now."""
        base = self._storage.version.node
        chain = self._chain
        if not chain:
            return base
        if self._seen_from is not base or self._seen_node is None:
            self._seen_node = apply_chain(base, chain)
            self._seen_from = base
        return self._seen_node

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._type.dtype

    @property
    def device(self) -> Any:
        """The canonical name of the device that holds it; of several devices a tuple of names."""
        name = self._storage.version.device
        return split_name(name) if is_group(name) else name

    def _layout(self) -> multi.Layout | None:
        """Which part of it each device has, as it is seen; None if any can make all of it."""
        version = self._storage.version
        if not self._chain or not is_group(version.device):
            return version.layout
        return layout_through(version.layout, version.node, self._chain)

    @property
    def _dims(self) -> Shape:
        """The shape as the IR has it: symbolic sizes are nodes."""
        return self._type.shape

    @property
    def shape(self) -> tuple[Any, ...]:
        """The size of each axis: ints, or Variables for sizes that are given at run time."""
        shape = self._type.shape
        for size in shape:
            if not isinstance(size, int):
                return tuple([as_size(size, self._bindings) for size in shape])
        return shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._type.shape)

    @property
    def is_realized(self) -> bool:
        """Whether the value is in memory already."""
        return self._storage.version.buffer is not None

    def numel(self) -> Size:
        """The number of elements."""
        return as_size(dims.product(self._type.shape), self._bindings)

    def nbytes(self) -> int:
        """The bytes that the elements take."""
        return self._count() * self.dtype.itemsize

    def element_size(self) -> int:
        """The bytes that one element takes."""
        return self.dtype.itemsize

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of axis `dim`."""
        return self.shape if dim is None else self.shape[self._axis(dim, "size")]

    def dim(self) -> int:
        """The number of axes."""
        return self.ndim

    def _count(self) -> int:
        """The number of elements; bound sizes count with their values."""
        return evaluate(dims.product(self._type.shape), self._bindings)

    def _sizes(self) -> tuple[int, ...]:
        """The shape in numbers; bound sizes with their values."""
        return tuple([evaluate(size, self._bindings) for size in self._type.shape])

    # --- realizing ---------------------------------------------------------------------------

    def realize(self, *others: TensorBase) -> Self:
        """Compute this tensor and `others`, all in one go; returns this one.

        A tensor that is in memory already costs nothing.  `Tensor.realize(a, b)` works too.
        """
        wanted: tuple[TensorBase, ...] = (self, *others)
        realize.realize([each._version_to_realize() for each in wanted])
        return self

    def _version_to_realize(self) -> Version:
        storage = self._storage
        if observe.active and self._chain and storage.version.buffer is None:
            observe.forget_locals()
        # Nobody else sees the storage (2: our slot and the argument of getrefcount and the local
        # name make 3), so only the part that this view shows has to be computed.
        if self._chain and storage.version.buffer is None and sys.getrefcount(storage) == 3:
            owned = self._apply(None)
            owned._storage.version.leaves = None
            # The storage stays, since a capture may know it by a weak reference.
            storage.version, self._chain = owned._storage.version, NO_VIEW
            observe.tensor_moved()
        return self._storage.version

    def contiguous(self) -> Self:
        """The value of this tensor in a storage of its own, in row-major order."""
        if not self._chain and self._storage.version.node.op is tensor.CONTIGUOUS:
            return self
        if not self._chain and self._storage.version.buffer is not None:
            return self
        found = self._apply(tensor.CONTIGUOUS)
        owner = self._storage.version.owner
        if owner is not None and owner() is self and not self._chain:
            found._storage.version.owner = weakref.ref(found)  # as much a user's leaf as this one
        return found

    def clone(self, device: str | None = None) -> Self:
        """A copy with memory of its own (on `device`, if given); gradients flow through it."""
        moved = self if device is None else self.to(device)
        return self._apply(tensor.CONTIGUOUS) if moved is self else moved

    def detach(self) -> Self:
        """The same memory, through which no gradient flows."""
        made = self._seen(tensor.DETACH, None)
        made._wants_gradient = False
        return made

    def to(self, device: str | Sequence[str] | None) -> Self:
        """This tensor on `device` (None: the default one); itself if it is there already.

        On several devices each gets all of it; `shard` splits it.
        """
        name = Device.canonicalize(device)
        here = self._storage.version.device
        if name == here:
            return self
        if is_group(name) or is_group(here):
            return self._resharded(spec.replicated(split_name(name), self.ndim))
        moved = self._apply(tensor.COPY, attrs=tensor.DeviceAttrs(name))
        moved._storage.version.device = name
        return moved

    def _resharded(self, layout: multi.Layout) -> Self:
        """This tensor in another layout, or on the only device of the layout."""
        moved = self._apply(multi.RESHARD, attrs=layout)
        version = moved._storage.version
        version.device = join_names(layout.devices)
        version.layout = layout if len(layout.devices) > 1 else None
        return moved

    def to_(self, device: str | Sequence[str] | None) -> Self:
        """Move this very tensor to `device`; its gradient will be there too."""
        return self._become(self._unlinked().to(device))

    def _unlinked(self) -> Self:
        """What `_become` may be given a moved form of: a leaf without what it was moved from."""
        is_leaf = self._wants_gradient or not self._storage.version.needs_gradient
        return self.detach() if is_leaf else self

    def _become(self, moved: Self) -> Self:
        """Let this very tensor be what is elsewhere; a leaf stays one."""
        if moved._storage is self._storage:
            return self
        if moved._chain:
            moved = moved._apply(tensor.CONTIGUOUS)
        old = self._storage
        owner = old.version.owner
        if self._wants_gradient:
            realize.mark_leaf(old.version, self._chain, self, wanted=False)
        self._storage, self._chain = moved._storage, moved._chain
        observe.tensor_moved(old)
        if owner is not None and owner() is self:
            self._storage.version.owner = owner
        if self._wants_gradient:
            self.requires_grad_(True)
        return self

    # --- writing -----------------------------------------------------------------------------

    def _write(self, value: TensorBase) -> None:
        """Put `value`, of the very shape and dtype of this tensor, into the storage."""
        if value.dtype is not self.dtype or value._dims != self._dims:
            raise ShapeError(
                "assign: the value does not fit",
                got=f"{value.dtype.name}{format_shape(value._dims)}",
                expected=f"{self.dtype.name}{format_shape(self._dims)}",
            )
        _check_writable(self._chain)
        storage = self._storage
        old = storage.version
        if not self._chain and old.buffer is None and old.op is not memory.AFTER:
            # Nothing is in memory yet, so there is no place to keep, but which device has what.
            layout = old.layout
            is_kept = layout is None or value._layout() == layout
            moved = value._apply(None) if is_kept or layout is None else value._resharded(layout)
            new = moved._storage.version
        else:
            source = value._storage.version
            if source.device != old.device:
                raise _other_device(memory.STORE, (self, value))
            given = (self._live_bindings(), value._live_bindings())
            if not can_merge((old.bindings, *given)):
                # What is not computed yet was written with another value of a variable.
                realize.realize([old, source])
                given = (self._live_bindings(), value._live_bindings())
            node = write_node(old, self._chain, value.node)
            new = Version(
                node,
                old.device,
                memory.AFTER,
                None,
                (old, source),
                (self._chain, value._chain),
                merge_bindings((old.bindings, *given), "assign"),
            )
            if is_group(old.device):
                new.layout = layout_after(node, (old.layout, value._layout()))
        new.is_state = old.is_state
        if old.leaves:
            self._keep_leaves(old, new)
        elif old.owner is not None and not records_history():
            new.owner = old.owner  # a user's leaf stays one when its values are set
        storage.hold(new)
        if observe.active:
            observe.storage_written(storage)

    def _keep_leaves(self, old: Version, new: Version) -> None:
        """The next version of a tensor with requires_grad is a leaf of its own."""
        if self._chain and records_history():
            raise AliasError(
                "assign: part of a tensor with requires_grad is written",
                try_="write inside `with Tensor.no_grad():`, or into a clone",
            )
        new.leaves = old.leaves
        new.needs_gradient = True
        new.is_tracked = False

    def _shares_place_with(self, other: TensorBase) -> bool:
        """Whether both are the very same view of one storage."""
        return self._storage is other._storage and self._chain == other._chain

    # --- gradients ---------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool | None:
        """Whether `backward` fills `grad`; None means that nobody has said."""
        if observe.active:
            observe.wish_used(self, is_set=False)
        return self._wants_gradient

    @requires_grad.setter
    def requires_grad(self, wanted: bool | None) -> None:
        self.requires_grad_(wanted)

    def requires_grad_(self, requires_grad: bool | None = True) -> Self:
        """Say whether `backward` fills `grad`; returns this tensor."""
        if requires_grad and not self.dtype.is_float:
            raise DTypeError(
                "requires_grad: only floats have gradients", got=self.dtype.name, expected="a float"
            )
        if observe.active:
            observe.wish_used(self, is_set=True)
        self._wants_gradient = requires_grad
        realize.mark_leaf(self._storage.version, self._chain, self, bool(requires_grad))
        return self

    @property
    def grad(self) -> Self | None:
        """The gradient that `backward` has added up, or None."""
        if observe.active:
            observe.gradient_used(self, is_set=False)
        return self._grad

    @grad.setter
    def grad(self, value: Self | None) -> None:
        if value is not None and value._dims != self._dims:
            raise ShapeError(
                "grad: it must have the shape of its tensor",
                got=format_shape(value._dims),
                expected=format_shape(self._dims),
            )
        if observe.active:
            observe.gradient_used(self, is_set=True)
        self._grad = value

    # --- sizes and axes ----------------------------------------------------------------------

    def _axis(self, axis: int, what: str, extra: int = 0) -> int:
        """An axis counted from the front; negative ones count from the end."""
        ndim = len(self._type.shape) + extra
        if type(axis) is int and -ndim <= axis < ndim:
            return axis % ndim
        if not hasattr(type(axis), "__index__") or isinstance(axis, bool):
            raise DTypeError(
                f"{what}: an axis must be an integer", got=f"{axis!r} of type {type(axis).__name__}"
            )
        number = axis.__index__()
        if not -max(ndim, 1) <= number < max(ndim, 1):
            raise ShapeError(
                f"{what}: axis {number} is out of range",
                got=f"shape {format_shape(self._dims)}",
                expected=f"an axis in [{-ndim}, {ndim})",
            )
        return number % ndim if ndim else 0

    def _axes(self, axis: int | tuple[int, ...] | list[int] | None, what: str) -> tuple[int, ...]:
        """Axes counted from the front, ascending; None stands for all."""
        if axis is None:
            return tuple(range(self.ndim))
        if isinstance(axis, tuple | list):
            found = [self._axis(one, what) for one in axis]
        else:
            found = [self._axis(axis, what)]
            found = found if self.ndim else []  # a scalar has an axis to be named, and none to fold
        if len(set(found)) != len(found):
            raise ShapeError(f"{what}: an axis is named twice", got=f"axes {axis}")
        return tuple(sorted(found))

    def _fixed_size(self, axis: int, what: str) -> int:
        """The size of an axis, which must be a number."""
        if not -self.ndim <= axis < self.ndim:
            raise ShapeError(
                f"{what}: there are too few axes",
                got=f"shape {format_shape(self._dims)}",
                expected=f"at least {axis + 1 if axis >= 0 else -axis}",
            )
        size = self._type.shape[axis]
        if not isinstance(size, int):
            raise ShapeError(
                f"{what}: axis {axis} must have a fixed size", got=format_dim(size),
                try_="use a size that is a number",
            )  # fmt: skip
        return size


def _check_writable(chain: Chain) -> None:
    for op, _ in chain:
        if op is tensor.EXPAND or op is tensor.PAD or op is tensor.WINDOW:
            raise AliasError(
                "assign: some elements of this view are one place in memory",
                got=f"a view through {op.name}",
                try_="write into .contiguous() or .clone() of it",
            )


def _other_device(op: OpDef | None, operands: tuple[TensorBase, ...]) -> UserError:
    found = " and ".join(dict.fromkeys(operand._storage.version.device for operand in operands))
    return UserError(
        f"{op.name if op is not None else 'view'}: operands are on different devices",
        got=found,
        try_="move one of them: tensor.to(device)",
    )
