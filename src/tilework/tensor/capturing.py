"""Capturing a call: run it as usual, and write down what a replay needs (`recipe.Recipe`).

The function runs once, as a plain call would.  Meanwhile `engine.capture` sees the kernels,
`observe` the versions and storages, and `engine.watcher` what else the Python code reads.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from operator import is_
from typing import TYPE_CHECKING, Any

from tilework.base import settings
from tilework.base.errors import CaptureError, InternalError
from tilework.base.records import replace
from tilework.engine import capture
from tilework.engine.foreign import is_a
from tilework.engine.guards import Guards
from tilework.engine.watcher import Watcher
from tilework.runtime.group import parts_of
from tilework.tensor import observe, realize
from tilework.tensor.captured import Captured
from tilework.tensor.core import TensorBase
from tilework.tensor.recipe import Held, Made, Output, Recipe, Wish
from tilework.tensor.signature import (
    Flat,
    Leaf,
    TensorSpec,
    Tree,
    flatten,
    flatten_call,
    rest_of,
    variable_spec,
)
from tilework.tensor.tensor import Tensor
from tilework.tensor.version import Storage, Version, records_history

if TYPE_CHECKING:
    from tilework.engine.captured_program import CapturedProgram
    from tilework.runtime.buffer import Buffer


def surroundings() -> tuple[Any, ...]:
    """What every op may depend on besides its operands."""
    return (settings.current(), records_history(), Tensor.training)


def capture_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], ring: int | None
) -> tuple[Any, Captured | None, str]:
    """Run `function` as a plain call, and return its result and what can be replayed, or why not.

    Raises: what the function raises; CaptureError when it reads a value on the host.
    """
    flat = flatten_call(args, kwargs)
    for tensor in flat.tensors:
        tensor.realize()
    ambient = surroundings()
    arguments = _Arguments(flat)
    with capture.capturing() as seen, observe.observing() as observer:
        sights = _Sights(observer)
        watcher = Watcher(sights.is_tensor, lambda tensor: observer.is_born(tensor._storage))
        watcher.add_function(function)
        seen.pause = watcher.paused
        seen.arguments = arguments.buffers()
        observer.forget_locals = watcher.forget_locals
        seen.trusts = not Tensor.training  # a step of training writes to its weights
        with watcher.watching():
            result = function(*args, **kwargs)
        gradients = _gradients_to_set(observer, flat)
        given = (result, *[leaf._grad for leaf in gradients]) if gradients else result
        returned = flatten(given, "result")
        realize.realize([tensor._version_to_realize() for tensor in returned.tensors])
        realize.realize(_pending(observer))
        made_late = (
            _reason_to_wait(observer, seen)
            or _argument_with_gradient(observer, flat)
            or sights.reason_to_wait()
            or _changed_container(flat, flatten_call(args, kwargs))
        )
    if made_late is not None:
        return result, None, made_late
    reads = watcher.guards()
    if not reads.drawn and (changed := reads.changed()) is not None:
        return result, None, f"it changes what it reads, which no replay does: {changed}"
    arguments_by_id = {id(tensor) for tensor in flat.tensors}
    for leaf, before in observer.gradients.values():
        if before is not None and id(leaf) not in arguments_by_id:
            watcher.note_slot(leaf, "_grad", before[0], f"the gradient of {leaf!r}")
    guards = watcher.guards() if observer.gradients else reads
    builder = _RecipeBuilder(flat, arguments, seen, observer, guards, returned, gradients)
    recipe = builder.build(ambient)
    return result, Captured(recipe, ring), ""


class _Sights:
    """Tensors that the function reaches, and which of them are not in memory when it does.

    What is read of such a tensor becomes a part of the program: how it is computed, not where it
    lies, so that a replay would neither see a write to it nor spare it those to its sources.
    """

    def __init__(self, observer: observe.Observer) -> None:
        self._observer = observer
        self._pending: list[weakref.ref[Version]] = []

    def is_tensor(self, value: Any) -> bool:
        """Whether an object is a tensor, which is then looked at."""
        if not is_a(value, TensorBase):
            return False
        version = value._storage.version
        if version.buffer is None and not self._observer.is_born(version):
            self._pending.append(weakref.ref(version))
        return True

    def reason_to_wait(self) -> str | None:
        """Why this very call cannot be replayed; a later one finds all of it in memory."""
        if not self._pending:
            return None
        versions = [reference() for reference in self._pending]
        realize.realize([version for version in versions if version is not None])
        return "it reads a tensor whose value was pending before the call"


class _Arguments:
    """Where the tensor arguments lie, taken down before the call changes them."""

    def __init__(self, flat: Flat) -> None:
        self.specs = _specs(flat)
        self._whole = [tensor._storage.version.buffer for tensor in flat.tensors]

    def buffers(self) -> list[Buffer]:
        """Their memory."""
        return [part for whole in self._whole if whole is not None for part in parts_of(whole)]

    def settle(self, seen: capture.Seen, fixed: set[int]) -> list[Buffer]:
        """Decide which of them may lie elsewhere at a replay, and return the program's inputs.

        Args:
            seen: what the call has run.
            fixed: arguments that may not.
        """
        ranges: list[Buffer] = []
        places: list[tuple[int, ...]] = []
        movable = [
            spec.part is not None and number not in fixed for number, spec in enumerate(self.specs)
        ]
        while True:
            ranges.clear()
            places.clear()
            for spec, whole, can_move in zip(self.specs, self._whole, movable, strict=True):
                if whole is None:
                    raise InternalError("jit: a realized argument has no memory", got=spec.name)
                wanted = spec.part.within(whole) if can_move and spec.part is not None else whole
                places.append(tuple([_index_of(ranges, part) for part in parts_of(wanted)]))
            allowed = seen.movable(ranges)
            still = [
                before and allowed[place[0]] for before, place in zip(movable, places, strict=True)
            ]
            if still == movable:
                break
            movable = still
        for spec, place, is_movable in zip(self.specs, places, movable, strict=True):
            spec.settle(place, is_movable)
        return ranges


def _index_of(buffers: list[Buffer], wanted: Buffer) -> int:
    """Return which of `buffers` is the place of `wanted`, which is added if none is."""
    place = (id(wanted.memory), wanted.offset_bytes, wanted.size_bytes)
    for number, known in enumerate(buffers):
        if (id(known.memory), known.offset_bytes, known.size_bytes) == place:
            return number
    buffers.append(wanted)
    return len(buffers) - 1


def _specs(flat: Flat) -> list[TensorSpec]:
    names: dict[int, str] = {}
    stack: list[Tree] = [flat.tree]
    while stack:
        top = stack.pop()
        if isinstance(top, Leaf):
            if top.kind == "tensor":
                names[top.number] = top.name
        else:
            stack.extend(top.items)
    return [TensorSpec(tensor, names[number]) for number, tensor in enumerate(flat.tensors)]


def _pending(observer: observe.Observer) -> list[Version]:
    """Writes that are not in memory yet, to storages that live on."""
    found: list[Version] = []
    for reference in observer.written:
        storage = reference()
        if storage is None or storage.version.buffer is not None:
            continue
        if not observer.is_born(storage) or storage.version.is_state:
            found.append(storage.version)
    return found


def _is_made(seen: capture.Seen, buffer: Buffer) -> bool:
    """Whether a run of the capture has made the memory, or that of a part, of `buffer`."""
    return any(seen.has_made(part) for part in parts_of(buffer))


def _reason_to_wait(observer: observe.Observer, seen: capture.Seen) -> str | None:
    """Why this very call cannot be replayed, though a later one may: it settled old work."""
    for reference in observer.realized:
        version = reference()
        if version is not None and not observer.is_born(version):
            return "it computed a value that was pending before the call"
    for written in observer.written:
        storage = written()
        if storage is None or observer.is_born(storage):
            continue
        buffer = storage.version.buffer
        if buffer is None or _is_made(seen, buffer):
            return "it gave memory to a tensor that had none before the call"
    return None


def _gradients_to_set(observer: observe.Observer, flat: Flat) -> list[TensorBase]:
    """Tensors of whose gradient the call has made another one, and did not begin with forgetting.

    A call that sets `grad` before anything reads it, as a step with `zero_grad` in it does, uses
    it for itself.  Otherwise whoever calls resets it, and reads it after the call.
    """
    own = {id(tensor) for tensor in flat.tensors}
    return [
        leaf
        for leaf, before in observer.gradients.values()
        if before is not None and leaf._grad is not before[0] and id(leaf) not in own
    ]


def _argument_with_gradient(observer: observe.Observer, flat: Flat) -> str | None:
    """Why the call cannot be replayed, if it gives an argument a gradient that is asked for."""
    for tensor in flat.tensors:
        _, before = observer.gradients.get(id(tensor), (tensor, None))
        if before is not None and tensor.requires_grad and tensor._grad is not before[0]:
            return "it gives a gradient to an argument"
    return None


def _changed_container(before: Flat, after: Flat) -> str | None:
    """Why the call cannot be replayed, if it changes a list or dictionary that it is given."""
    is_same = before.tree == after.tree and all(map(is_, _items(before), _items(after)))
    return None if is_same else "it changes a list or dictionary that it is given"


def _items(flat: Flat) -> list[object]:
    return [*flat.tensors, *flat.variables, *flat.values]


class _RecipeBuilder:
    """Puts together what a capture has seen."""

    def __init__(
        self,
        flat: Flat,
        arguments: _Arguments,
        seen: capture.Seen,
        observer: observe.Observer,
        guards: Guards,
        returned: Flat,
        gradients: list[TensorBase],
    ) -> None:
        self.flat = flat
        self.arguments = arguments
        self.specs = arguments.specs
        self.inputs: list[Buffer] = []
        self.seen = seen
        self.observer = observer
        self.guards = guards
        self.returned = returned
        self.gradients = gradients
        self._made_buffers: list[Any] = []
        self._made: list[Made] = []
        self._made_of: dict[int, int] = {}

    def build(self, ambient: tuple[Any, ...]) -> Recipe:
        """Return the recipe."""
        outputs = [self._output(tensor) for tensor in self.returned.tensors]
        fixed_sources = self._fixed_sources()
        fixed = {number for number, _ in fixed_sources} | self._unmovable(outputs)
        self.inputs = self.arguments.settle(self.seen, fixed)
        outputs = [self._as_seen(output) for output in outputs]
        program = self.seen.finish(self.inputs, self._made_buffers)
        held_buffers = program.held
        self._check_lost_state(held_buffers)
        names: set[str] = set()
        for spec in self.specs:
            names.update(spec.variables)
        for variable in self.flat.variables:
            names.update(variable.bindings or {})
        returned_storages = {id(tensor._storage) for tensor in self.returned.tensors}
        return Recipe(
            tree=self.flat.tree,
            tensors=self.specs,
            variables=[
                variable_spec(variable, f"variable {number}")
                for number, variable in enumerate(self.flat.variables)
            ],
            values=self.flat.values,
            pinned={
                name: value
                for name, value in self._values().items()
                if name in self.seen.pinned and name in names
            },
            frozen={n: v for n, v in self.seen.values.items() if n not in names},
            fixed_sources=fixed_sources,
            num_inputs=len(self.inputs),
            program=program,
            guards=self.guards,
            places=[(leaf, leaf._storage, leaf._chain) for leaf in self.guards.leaves],
            held=self._held(program),
            outputs=outputs,
            made=self._made,
            result=self.returned.tree,
            result_values=self.returned.values,
            ambient=ambient,
            orphans=self._orphans(returned_storages),
            tensor_type=self._tensor_type(),
            gradients=self.gradients,
            wishes=self._wishes(),
        )

    def _wishes(self) -> list[Wish]:
        """What the function read of `requires_grad`."""
        numbers = {id(tensor): number for number, tensor in enumerate(self.flat.tensors)}
        return [
            Wish(numbers.get(id(tensor)), weakref.ref(tensor), read[0])
            for tensor, read in self.observer.wishes.values()
            if read is not None
        ]

    def _values(self) -> dict[str, int]:
        found = dict(self.seen.values)
        for tensor in self.flat.tensors:
            found.update(tensor._bindings or {})
            found.update(tensor._storage.version.bindings or {})
        for variable in self.flat.variables:
            found.update(variable.bindings or {})
        return found

    def _tensor_type(self) -> type[TensorBase]:
        for tensor in (*self.returned.tensors, *self.flat.tensors):
            return type(tensor)
        return TensorBase

    def _fixed_sources(self) -> list[tuple[int, Storage]]:
        """Arguments that the function also reaches by itself must stay those very tensors."""
        reached = {id(leaf._storage): leaf._storage for leaf in self.guards.leaves}
        return [
            (number, tensor._storage)
            for number, tensor in enumerate(self.flat.tensors)
            if id(tensor._storage) in reached
        ]

    def _unmovable(self, outputs: list[Output]) -> set[int]:
        """Arguments that are written, or of whose bases other parts are returned."""
        written = {id(reference()) for reference in self.observer.written}
        found = {
            number
            for number, tensor in enumerate(self.flat.tensors)
            if id(tensor._storage) in written
        }
        for output in outputs:
            is_view = output.kind == "view"
            if is_view and rest_of(output.chain, self.specs[output.number].seen) is None:
                found.add(output.number)
        return found

    def _as_seen(self, output: Output) -> Output:
        """The same view of the argument, wherever that lies."""
        if output.kind != "view" or not self.specs[output.number].is_movable:
            return output
        rest = rest_of(output.chain, self.specs[output.number].seen)
        if rest is None:
            raise InternalError("jit: a view is no view of its argument", got=output.chain)
        return replace(output, kind="seen", chain=rest)

    def _output(self, tensor: TensorBase) -> Output:
        storage = tensor._storage
        version = storage.version
        variables = tuple(sorted({**(version.bindings or {}), **(tensor._bindings or {})}))
        kind, number, what = self._origin(tensor, storage, version)
        return Output(kind, number, what, tensor._chain, tensor._type, variables)

    def _origin(
        self, tensor: TensorBase, storage: Storage, version: Version
    ) -> tuple[str, int, Any]:
        for number, argument in enumerate(self.flat.tensors):
            if argument is tensor:
                return "argument", number, None
        if any(leaf is tensor for leaf in self.guards.leaves):
            return "object", 0, tensor
        for number, argument in enumerate(self.flat.tensors):
            if argument._storage is storage:
                return "view", number, None
        if not self.observer.is_born(storage):
            return "storage", 0, storage
        buffer = version.buffer
        if buffer is not None and _is_made(self.seen, buffer):
            return "made", self._made_number(version), None
        for number, argument in enumerate(self.flat.tensors):
            if argument._storage.version is version:
                return "view", number, None
        return "value", 0, version

    def _made_number(self, version: Version) -> int:
        found = self._made_of.get(id(version.buffer))
        if found is None:
            found = self._made_of[id(version.buffer)] = len(self._made)
            kind = version.node.type
            first = len(self._made_buffers)
            if version.buffer is not None:
                self._made_buffers += parts_of(version.buffer)
            self._made.append(
                Made(
                    version.device,
                    kind.shape,
                    kind.dtype,
                    version.needs_gradient,
                    tuple(sorted(version.bindings or ())),
                    first,
                    version.layout,
                )
            )
        return found

    def _held(self, program: CapturedProgram) -> list[Held]:
        """The storages of held buffers, found through the versions that the runs have read."""
        slots = {id(buffer.memory): slot for slot, buffer in enumerate(program.held)}
        storages: dict[int, Storage] = {}
        for reference in self.observer.read:
            version = reference()
            if version is not None and version.buffer is not None:
                storages.update((id(storage), storage) for storage in version.storages())
        for written in self.observer.written:
            storage = written()
            if storage is not None and storage.version.buffer is not None:
                storages[id(storage)] = storage
        found: list[Held] = []
        for storage in storages.values():
            buffer = storage.version.buffer
            for number, part in enumerate(() if buffer is None else parts_of(buffer)):
                slot = slots.get(id(part.memory))
                if slot is not None:
                    is_written = len(self.inputs) + slot in program.written
                    wants = storage.version.needs_gradient
                    found.append(Held(storage, slot, buffer, is_written, wants, number))
        return found

    def _check_lost_state(self, held: list[Any]) -> None:
        """Refuse state that the function replaces by new tensors instead of writing to it.

        Held memory that was there before the call, and that no version has after it, was read
        and then thrown away; the next call would read something else.
        """
        if self.observer.has_replaced:
            raise CaptureError(
                "jit: the function makes a tensor that was there before refer to another storage",
                field="state",
                expected="state that is written in place",
                try_="write into the tensor: state.assign(...)",
            )
        live: set[int] = set()
        for versions in (self.observer.read, self.observer.versions):
            for reference in versions:
                version = reference()
                if version is not None and version.buffer is not None:
                    live.update([id(part.memory) for part in parts_of(version.buffer)])
        for written in self.observer.written:
            storage = written()
            if storage is not None and storage.version.buffer is not None:
                live.update([id(part.memory) for part in parts_of(storage.version.buffer)])
        for buffer in held:
            if id(buffer.memory) in self.observer.old_memory - live:
                raise CaptureError(
                    "jit: the function reads a tensor and then replaces it by another object",
                    field="state",
                    got=f"{buffer.size_bytes} bytes that nothing refers to after the call",
                    expected="state that is written in place",
                    try_="write into the tensor: state.assign(...)",
                )

    def _orphans(self, returned: set[int]) -> list[Any]:
        """Storages that the call made and left somewhere, whose contents a replay makes anew."""
        found: list[Any] = []
        for reference in self.observer.storages:
            storage = reference()
            if storage is None or id(storage) in returned or storage.version.is_state:
                continue
            buffer = storage.version.buffer
            if buffer is None or _is_made(self.seen, buffer):
                found.append(weakref.ref(storage))
        return found
