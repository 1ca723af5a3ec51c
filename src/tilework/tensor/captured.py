"""One capture of a function: when it may be replayed, and the replay itself.

A replay (1) checks the arguments, what the function reads besides them, and the tensors that it
holds; (2) keeps what somebody else still needs of the contents that it will overwrite; (3) takes
memory for the results that no live result uses; (4) makes one native call; (5) wraps the results.
Until (4) nothing that the user can see has changed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import InternalError
from tilework.engine.overlap import share_a_byte
from tilework.engine.sharing import end_all
from tilework.engine.stale import StaleBuffer
from tilework.engine.stats import COUNTERS
from tilework.engine.steps import check_variables
from tilework.ir.symbolic import dims
from tilework.runtime.group import parts_of
from tilework.tensor import observe, realize
from tilework.tensor.core import TensorBase
from tilework.tensor.recipe import Held, Recipe
from tilework.tensor.results import Result, Results, preserve, ruin
from tilework.tensor.signature import (
    Flat,
    Leaf,
    TensorSpec,
    Tree,
    first_difference,
    flatten_call,
    joined,
    rebuild,
    value_difference,
)
from tilework.tensor.version import Storage, from_buffer, merge_bindings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.engine.latency import Latency
    from tilework.engine.validate import Report
    from tilework.runtime.buffer import Buffer

# References to a version that nobody outside needs: its storage, a local name, the argument.
_OWN_REFERENCES: Final = 3


#: The tensors, the input buffers and the variables of a call.
Bound = tuple[Sequence[TensorBase], list["Buffer"], "Mapping[str, int]"]


class Mismatch(Exception):
    """The call differs from the captured one."""

    def __init__(self, field: str, got: object = None, expected: object = None) -> None:
        super().__init__(field)
        self.field = field
        self.got = got
        self.expected = expected


class Captured:
    """A recipe with its memory.  Used by one thread at a time, which `jit` sees to."""

    def __init__(self, recipe: Recipe, ring: int | None) -> None:
        self.recipe = recipe
        self.replays = 0
        self.results = Results(recipe, ring)
        program = recipe.program
        written = program.written
        self.written_inputs = [n for n in range(recipe.num_inputs) if n in written]
        self._has_writes = bool(written)
        self._is_validated = recipe.ambient[0].validate  # a changed setting is another capture
        #: Held buffers that no argument may overlap, and their memories.
        self._guarded_slots = [
            number
            for number in range(len(program.held) if self._has_writes else 0)
            if self.written_inputs or recipe.num_inputs + number in written
        ]
        self.guarded = self._guarded_memory()
        #: `observe.moves` when `recipe.places` was last compared.
        self.moves = -1
        #: Arguments, and what is held, through which no gradient may flow: a result that was made
        #: without would hide it, and a gradient that lacks a part is wrong.
        self.constant_tensors, self.constant_held = self._constants()
        names = {spec.name for spec in recipe.tensors}
        tree = recipe.tree
        self._is_simple = (
            not isinstance(tree, Leaf)
            and not tree.keys
            and all(isinstance(item, Leaf) and item.kind == "tensor" for item in tree.items)
            and len(names) == len(tree.items)
        )
        self._has_variables = bool(recipe.variables or recipe.frozen or recipe.pinned) or any(
            spec.variables for spec in recipe.tensors
        )
        out = recipe.result
        self._is_single = isinstance(out, Leaf) and out.kind == "tensor"
        #: Whether a call can be written out; see `tensor.quick`.
        self.is_plain = not self._is_validated and ring is None and not recipe.wishes

    def _constants(self) -> tuple[list[int], list[Held]]:
        recipe = self.recipe
        history = recipe.ambient[1]
        is_hiding = any(m.dtype.is_float and not m.needs_gradient for m in recipe.made)
        if not history or not (is_hiding or self._has_writes):
            return [], []
        tensors = [
            number
            for number, spec in enumerate(recipe.tensors)
            if spec.type.dtype.is_float
            and not spec.needs_gradient
            and not any(source in self.written_inputs for source in spec.sources)
        ]
        held = [row for row in recipe.held if not (row.is_written or row.needs_gradient)]
        return tensors, held

    # --- checking ----------------------------------------------------------------------------

    def match(
        self, ambient: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Bound:
        """Return what `replay` takes, of a call like the captured one.

        Raises: Mismatch with the field that differs.
        """
        bound = self.bind(args, kwargs)
        if self.check_surroundings(ambient):
            return self.bind(args, kwargs)
        return bound

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound:
        """Return the tensors, the input buffers and the variables of a call like the captured one.

        Raises: Mismatch with the field that differs.
        """
        recipe = self.recipe
        if self._is_simple and not kwargs:
            if len(args) != len(recipe.tensors):
                raise Mismatch("the number of arguments", len(args), len(recipe.tensors))
            tensors: Sequence[TensorBase] = args
            flat = None
        else:
            flat = self._flatten(args, kwargs)
            tensors = flat.tensors
        buffers = self._buffers(tensors)
        for wish in recipe.wishes:
            asked = wish.held() if wish.argument is None else tensors[wish.argument]
            if asked is not None and asked._wants_gradient is not wish.value:
                name = "a tensor" if wish.argument is None else recipe.tensors[wish.argument].name
                raise Mismatch(f"{name}: requires_grad", asked._wants_gradient, wish.value)
        values: Mapping[str, int] = recipe.frozen
        if self._has_variables:
            values = self._variables(tensors, flat)
        if self._has_writes:
            self._check_aliases(buffers)
        return tensors, buffers, values

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Flat:
        recipe = self.recipe
        flat = flatten_call(args, kwargs)
        if flat.tree != recipe.tree:
            where = first_difference(recipe.tree, flat.tree)
            raise Mismatch(where or "the arguments", "another structure")
        for number, now in enumerate(flat.values):
            found = value_difference(now, recipe.values[number])
            if found is not None:
                raise Mismatch(_value_name(recipe.tree, number), *found[1:])
        for row, variable in zip(recipe.variables, flat.variables, strict=True):
            found = row.difference(variable)
            if found is not None:
                raise Mismatch(f"{row.name}: {found[0]}", *found[1:])
        return flat

    def _buffers(self, tensors: Sequence[TensorBase]) -> list[Buffer]:
        found: list[Buffer | None] = [None] * self.recipe.num_inputs
        for spec, tensor in zip(self.recipe.tensors, tensors, strict=True):
            if not isinstance(tensor, TensorBase):
                raise Mismatch(spec.name, type(tensor).__name__, "a tensor")
            if tensor._storage.version.buffer is None:
                tensor.realize()
            buffer = spec.find(tensor)
            if buffer is None:
                difference = spec.difference(tensor) or ("signature", tensor, spec.type)
                raise Mismatch(f"{spec.name}: {difference[0]}", *difference[1:])
            if spec.layout is not None:
                self._place_parts(spec, buffer, found)
                continue
            before = found[spec.source]
            if before is None:
                found[spec.source] = buffer
            elif before is not buffer and not _is_same_place(before, buffer):
                raise Mismatch(f"{spec.name}: alias pattern", "another tensor", "the same tensor")
        for number, storage in self.recipe.fixed_sources:
            if tensors[number]._storage is not storage:
                name = self.recipe.tensors[number].name
                raise Mismatch(
                    f"{name}: alias pattern", "another tensor", "the one that the function reads"
                )
        for number in self.constant_tensors:
            if tensors[number]._storage.version.needs_gradient:
                raise Mismatch(f"{self.recipe.tensors[number].name}: requires_grad", True, False)
        return found  # type: ignore[return-value]  # every source has a tensor

    def _place_parts(self, spec: TensorSpec, buffer: Buffer, found: list[Buffer | None]) -> None:
        """Take the parts of an argument over several devices as inputs."""
        for source, part in zip(spec.sources, parts_of(buffer), strict=True):
            before = found[source]
            if before is None:
                found[source] = part
            elif before is not part and not _is_same_place(before, part):
                raise Mismatch(f"{spec.name}: alias pattern", "another tensor", "the same tensor")

    def _variables(self, tensors: Sequence[TensorBase], flat: Flat | None) -> Mapping[str, int]:
        rows: list[Mapping[str, int] | None] = []
        for spec, tensor in zip(self.recipe.tensors, tensors, strict=True):
            version = tensor._storage.version
            rows += (tensor._bindings, version.bindings)
            if not spec.variables and not tensor._bindings:
                continue
        if flat is not None:
            rows += [variable.bindings for variable in flat.variables]
        values = {**self.recipe.frozen, **(merge_bindings(rows, "jit") or {})}
        for name, value in self.recipe.pinned.items():
            if values.get(name) != value:
                raise Mismatch(f"the value of variable {name}", values.get(name), value)
        return values

    def _check_aliases(self, buffers: list[Buffer]) -> None:
        """Refuse overlaps with memory that is written, unless the capture had the same."""
        guarded = self.guarded
        if guarded:
            for buffer in buffers:
                memory = buffer.memory
                if id(memory) in guarded or (memory.lease is not None and self._is_held(buffer)):
                    raise Mismatch("alias pattern", "an argument that the function also holds")
        for number in self.written_inputs:
            target = buffers[number]
            if target.memory.is_readonly:
                raise Mismatch("read-only memory", repr(target), "memory that can be written")
            for other, buffer in enumerate(buffers):
                if other != number and share_a_byte(target, buffer):
                    raise Mismatch("alias pattern", "arguments that overlap", "separate memory")

    def _guarded_memory(self) -> frozenset[int]:
        held = self.recipe.program.held
        return frozenset(id(held[number].memory) for number in self._guarded_slots)

    def _is_held(self, buffer: Buffer) -> bool:
        """Whether a loan shows bytes of a buffer that is guarded."""
        held = self.recipe.program.held
        return any(share_a_byte(held[number], buffer) for number in self._guarded_slots)

    def check_surroundings(self, ambient: tuple[Any, ...]) -> bool:
        """Compare what the function reads besides its arguments.

        Returns: whether values were computed for that, so that the arguments may lie elsewhere.

        Raises: Mismatch.
        """
        recipe = self.recipe
        if ambient != recipe.ambient:
            raise Mismatch("the settings, Tensor.training or no_grad")
        changed = recipe.guards.changed()
        if changed is not None:
            raise Mismatch(changed)
        if observe.moves != self.moves:
            self._check_places()
        is_refreshed = False
        for held in recipe.held:
            if held.storage.version.buffer is not held.buffer:
                self._refresh(held)
                is_refreshed = True
        for held in self.constant_held:
            if held.storage.version.needs_gradient:
                raise Mismatch("a tensor that the function holds: requires_grad", True, False)
        return is_refreshed

    def _check_places(self) -> None:
        """Some tensors refer to other storages than they did; ours must not."""
        moves = observe.moves
        for tensor, storage, chain in self.recipe.places:
            if tensor._storage is not storage or tensor._chain != chain:
                raise Mismatch("a tensor that the function holds: its storage")
        self.moves = moves

    def _refresh(self, held: Held) -> None:
        """Somebody wrote to a held storage: bring it into memory, and note where that is."""
        realize.realize([held.storage.version])
        version = held.storage.version
        buffer = version.buffer
        program = self.recipe.program
        if buffer is None:
            raise InternalError("jit: a realized tensor has no memory")
        old, part = program.held[held.slot], parts_of(buffer)[held.part]
        if part.memory is not old.memory:
            if part.size_bytes != old.size_bytes or version.node.type.dtype.itemsize == 0:
                raise Mismatch("a tensor that the function holds", part.size_bytes)
            program.replace_held(held.slot, part)
            self.guarded = self._guarded_memory()
        held.buffer = buffer

    # --- running -----------------------------------------------------------------------------

    def replay(
        self,
        tensors: Sequence[TensorBase],
        buffers: list[Buffer],
        values: Mapping[str, int],
        latency: Latency | None = None,
        stamps: list[int] | None = None,
        report: Report | None = None,
    ) -> Any:
        """Run on a call that `bind` has accepted.

        Args:
            tensors: from `bind`.
            buffers: from `bind`.
            values: from `bind`.
            latency: gets the time of each kernel, if it wants that.
            stamps: see `CapturedProgram.run`.
            report: makes it a validated run, whose findings it gets.
        """
        recipe = self.recipe
        if recipe.program.is_stale:
            self.release()  # results that wait for reuse went with a device that was closed
        if self.replays == 0:
            self._mark_orphans()
        self.replays += 1
        COUNTERS.replays += 1
        if self._has_writes:
            self._keep_old_contents(tensors)
        results = self.results.for_replay(self.replays, values)
        outputs = [part for result in results for part in parts_of(result.buffer)]
        check_variables(recipe.program.variables, values)
        try:
            self._run(buffers, outputs, values, latency, stamps, report)
        except BaseException:
            end_all([device.name for device in recipe.program.open_devices()])
            if self._has_writes:
                self.ruin_state(tensors)
            raise
        return self._wrap(tensors, results, values)

    def _run(
        self,
        buffers: Sequence[Buffer],
        outputs: Sequence[Buffer],
        values: Mapping[str, int],
        latency: Latency | None,
        stamps: list[int] | None,
        report: Report | None,
    ) -> None:
        program = self.recipe.program
        if report is not None or self._is_validated:
            program.validate(buffers, outputs, values, report)
        elif latency is None:
            program.run(buffers, outputs, values, stamps)
        else:
            started = perf_counter_ns()
            rows = program.time(buffers, outputs, values)
            latency.note_kernels([seconds for _, seconds in rows])
            if stamps is not None:
                now = perf_counter_ns()
                stamps += (started, now, now)

    def ruin_state(self, tensors: Sequence[TensorBase]) -> None:
        """A run failed that may have written a part of the state: nobody may read it any more."""
        for held in self.recipe.held:
            if held.is_written:
                ruin(held.storage.version)
        for spec, tensor in zip(self.recipe.tensors, tensors, strict=True):
            if any(source in self.written_inputs for source in spec.sources):
                ruin(tensor._storage.version)

    def _keep_old_contents(self, tensors: Sequence[TensorBase]) -> None:
        """Copy what is about to be overwritten if anybody else refers to it."""
        for held in self.recipe.held:
            if held.is_written:
                version = held.storage.version
                if sys.getrefcount(version) != _OWN_REFERENCES:
                    del version
                    preserve(held.storage)
        if self.written_inputs:
            for number in self.written_inputs:
                for spec, tensor in zip(self.recipe.tensors, tensors, strict=True):
                    if number in spec.sources:
                        version = tensor._storage.version
                        if sys.getrefcount(version) != _OWN_REFERENCES:
                            del version
                            preserve(tensor._storage)
                        break

    def _wrap(
        self, tensors: Sequence[TensorBase], results: list[Result], values: Mapping[str, int]
    ) -> Any:
        recipe = self.recipe
        storages = [Storage(result.version) for result in results]
        new = recipe.tensor_type.__new__
        kind = recipe.tensor_type

        def tensor_at(number: int) -> Any:
            row = recipe.outputs[number]
            chain = row.chain
            if row.kind == "made":
                storage = storages[row.number]
            elif row.kind == "argument":
                return tensors[row.number]
            elif row.kind == "object":
                return row.what
            elif row.kind == "view":
                storage = tensors[row.number]._storage
            elif row.kind == "seen":
                storage = tensors[row.number]._storage
                chain = joined(tensors[row.number]._chain, chain)
            elif row.kind == "storage":
                storage = row.what
            else:
                storage = Storage(row.what)
            bindings = {name: values[name] for name in row.variables} if row.variables else None
            return new(kind)._set(storage, chain, row.type, bindings)

        if self._is_single:
            return tensor_at(0)
        found = rebuild(recipe.result, tensor_at, recipe.result_values)
        if recipe.gradients:
            found, *gradients = found
            for leaf, gradient in zip(recipe.gradients, gradients, strict=True):
                leaf.grad = gradient
        return found

    def _mark_orphans(self) -> None:
        """Tensors that the captured call left behind, and that no replay makes anew, go stale."""
        for reference in self.recipe.orphans:
            storage = reference()
            if storage is None:
                continue
            old = storage.version
            kind = old.node.type
            count = dims.greatest(dims.product(kind.shape))
            gone = StaleBuffer(
                old.device,
                max(count * kind.dtype.itemsize, 1),
                "jit: this tensor was made inside a captured function that has run again",
                "return it from the function",
            )
            storage.hold(from_buffer(gone, old.device, kind.shape, kind.dtype))
        self.recipe.orphans.clear()

    def release(self) -> None:
        """Give back the memory of results and intermediates; the next replay takes it again."""
        self.recipe.program.release()
        self.results.clear()


def _is_same_place(one: Buffer, other: Buffer) -> bool:
    return (
        one.memory is other.memory
        and one.offset_bytes == other.offset_bytes
        and one.size_bytes == other.size_bytes
    )


def _value_name(tree: Tree, number: int) -> str:
    stack = [tree]
    while stack:
        top = stack.pop()
        if isinstance(top, Leaf):
            if top.kind == "value" and top.number == number:
                return top.name
        else:
            stack.extend(top.items)
    return "the arguments"
