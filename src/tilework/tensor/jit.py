"""`jit`: capture what a function computes once, and replay it.

    step = jit(function)          # or @jit; up to `settings.captures` signatures are kept
    step = TinyJit(function)      # one signature: a call that differs raises CaptureError

A call whose arguments, or anything else that the function reads (`engine.guards`), differ from
every capture captures again, with an event that says what changed; or raises if no more captures
are allowed.  Each result is the same as that of the plain call.  An argument that is only read
may be any contiguous part of any tensor: `step(x[i : i + 32])` replays for each i, and copies
nothing.

What a capture cannot see: the contents of large containers and arrays, files, clocks, C code.
"""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, overload

from tilework.base import settings, trace
from tilework.base.errors import CaptureError, InternalError, UserError
from tilework.engine import capture
from tilework.engine.explain import explain_program
from tilework.engine.guards import Guards, Watcher
from tilework.engine.latency import WINDOW, Latency, start_filling
from tilework.engine.stats import COUNTERS
from tilework.engine.validate import Report
from tilework.tensor import observe, realize
from tilework.tensor.captured import Bound, Captured, Held, Made, Mismatch, Output, Recipe
from tilework.tensor.core import TensorBase
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
    from tilework.runtime.buffer import Buffer

P = ParamSpec("P")
R = TypeVar("R")

#: Calls that may pass without a capture before a warning says why.
_PATIENCE: Final = 3
#: After that, a capture is tried at each of so many calls.
_RETRY_EVERY: Final = 16


class Jit(Generic[P, R]):
    """A function that is captured and replayed.  Thread-safe: one call at a time.

    Args:
        function: takes and returns tensors, also inside lists, tuples and dictionaries.
        captures: how many signatures are kept; None takes the setting, 1 freezes.
        outputs: None gives each result memory of its own, reused when it is dropped; a number
            gives a ring of so many, and reading a superseded result raises StaleOutputError.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        captures: int | None = None,
        outputs: int | None = None,
    ) -> None:
        if not callable(function):
            raise UserError("jit: this is not a function", got=type(function).__name__)
        if (captures is not None and captures < 1) or (outputs is not None and outputs < 1):
            raise UserError("jit: captures and outputs are at least 1", got=(captures, outputs))
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._captures = captures
        self._ring = outputs
        self._kept: list[Captured] = []  # the last used first
        self._lock = threading.RLock()
        self._methods: dict[int, tuple[weakref.ref[Any], Jit[..., Any]]] = {}
        self._failures = 0
        self._calls_since_failure = 0
        self._latency: Latency | None = None
        #: How often it was called.
        self.cnt = 0

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: each instance has captures of its own."""
        if instance is None:
            return self
        found = self._methods.get(id(instance))
        if found is None or found[0]() is not instance:
            bound = self._function.__get__(instance, owner)
            made: Jit[..., Any] = Jit(bound, captures=self._captures, outputs=self._ring)
            key = id(instance)
            reference = weakref.ref(instance, lambda _: self._methods.pop(key, None))
            found = self._methods[key] = (reference, made)
        return found[1]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Replay, or capture while running."""
        if capture.is_capturing():
            return self._function(*args, **kwargs)  # part of the capture around it
        with self._lock:
            self.cnt += 1
            latency = self._latency
            stamps = None if latency is None else [perf_counter_ns()]
            mismatch: Mismatch | None = None
            ambient = _ambient()
            for number, captured in enumerate(self._kept):
                try:
                    tensors, buffers, values = captured.match(ambient, args, kwargs)
                except Mismatch as found:
                    mismatch = mismatch or found
                    continue
                if number:
                    self._kept.insert(0, self._kept.pop(number))
                timed = None
                if latency is not None and stamps is not None:
                    stamps.append(perf_counter_ns())
                    timed = latency if latency.times_kernels else None
                if captured.recipe.program.written:
                    with realize.exclusive():
                        result = captured.replay(tensors, buffers, values, timed, stamps)
                else:
                    result = captured.replay(tensors, buffers, values, timed, stamps)
                if latency is not None and stamps is not None:
                    latency.note_call(stamps)
                return result  # type: ignore[no-any-return]
            return self._capture_or_refuse(mismatch, args, kwargs)

    # --- looking at it -----------------------------------------------------------------------

    @property
    def captured(self) -> Captured | None:
        """The capture that was used last."""
        return self._kept[0] if self._kept else None

    @property
    def num_captures(self) -> int:
        """How many signatures are kept now."""
        return len(self._kept)

    def measure(self, *, window: int = WINDOW, kernels: bool = False) -> Latency:
        """Measure each replay from now on, and return what will be filled.

        Args:
            window: how many calls are kept.
            kernels: also time each kernel, for `explain`; a call takes longer then.

        Returns:
            The times: `print` it, or ask for its `summary()`.
        """
        with self._lock:
            made = Latency(window, kernels=kernels)
            start_filling(made, self._latency)
            self._latency = made
        return made

    def stop_measuring(self) -> None:
        """Measure no more."""
        with self._lock:
            start_filling(None, self._latency)
            self._latency = None

    def validate(self, *args: P.args, **kwargs: P.kwargs) -> Report:
        """Call it, and run each kernel on a reference too.

        Args:
            *args: as for a call; one that differs from all captures is made and captured first.
            **kwargs: the same.

        Returns:
            How many kernels were compared, and the first one that differs by more than rounding.
        """
        with self._lock:
            for captured in self._kept:
                bound = _match(captured, args, kwargs)
                if bound is not None:
                    report = Report()
                    with realize.exclusive():
                        captured.replay(*bound, report=report)
                    return report
            before = COUNTERS.captures
            self(*args, **kwargs)
            if COUNTERS.captures == before:
                raise CaptureError("jit: this call could not be captured, so nothing is compared")
            return self.validate(*args, **kwargs)

    def unseen(self) -> tuple[str, ...]:
        """What the last capture reads and cannot watch."""
        return self._kept[0].recipe.guards.unseen if self._kept else ()

    def explain(self) -> str:
        """The launches of the capture that was used last, its memory, and what it cannot watch.

        The time of each kernel is there after `measure(kernels=True)` and some calls.
        """
        if not self._kept:
            return "nothing has been captured"
        recipe = self._kept[0].recipe
        seconds = [] if self._latency is None else self._latency.kernel_seconds()
        head = explain_program(recipe.program, seconds, f"{len(recipe.guards.entries)} guards")
        return "\n".join([head, *(f"not watched: {text}" for text in recipe.guards.unseen)])

    def reset(self) -> None:
        """Forget all captures and give back their memory."""
        with self._lock:
            while self._kept:
                self._kept.pop().release()
            self._failures = 0
            self.cnt = 0

    def free_intermediates(self) -> None:
        """Give back the memory of intermediates and results; the next replay takes it again."""
        with self._lock:
            for captured in self._kept:
                captured.release()

    # --- capturing ---------------------------------------------------------------------------

    def _limit(self) -> int:
        return settings.current().captures if self._captures is None else self._captures

    def _capture_or_refuse(
        self, mismatch: Mismatch | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> R:
        name = getattr(self._function, "__qualname__", repr(self._function))
        if mismatch is not None:
            if self._limit() == 1:
                raise CaptureError(
                    f"jit: this call of {name} differs from the captured one",
                    field=mismatch.field,
                    got=f"{mismatch.field}: {mismatch.got}" if mismatch.got is not None
                    else mismatch.field,
                    expected=mismatch.expected,
                    try_="allow more captures: jit(function, captures=8); or reset() it",
                )  # fmt: skip
            if trace.enabled():
                trace.emit(trace.Recaptured(name, mismatch.field))
        if self._failures >= _PATIENCE:
            self._calls_since_failure += 1
            if self._calls_since_failure % _RETRY_EVERY:
                return self._function(*args, **kwargs)
        result, captured, reason = _capture(self._function, args, kwargs, self._ring)
        if captured is None:
            self._failures += 1
            if self._failures == _PATIENCE:
                trace.warn("jit", f"{name} is not captured: {reason}")
            return result  # type: ignore[no-any-return]
        self._failures = 0
        COUNTERS.captures += 1
        self._kept.insert(0, captured)
        while len(self._kept) > self._limit():
            self._kept.pop().release()
        return result  # type: ignore[no-any-return]


@overload
def jit(
    function: Callable[P, R], *, captures: int | None = None, outputs: int | None = None
) -> Jit[P, R]: ...
@overload
def jit(
    function: None = None, *, captures: int | None = None, outputs: int | None = None
) -> Callable[[Callable[P, R]], Jit[P, R]]: ...
def jit(
    function: Callable[..., Any] | None = None,
    *,
    captures: int | None = None,
    outputs: int | None = None,
) -> Any:
    """Capture a function at its first call and replay it at later ones.

    Args:
        function: takes and returns tensors, also inside lists, tuples and dictionaries; None makes
            a decorator.
        captures: how many signatures are kept; None takes the setting `captures`, 1 freezes: a
            call that differs then raises CaptureError.
        outputs: a ring of so many results; None gives each result memory of its own.

    Returns:
        A callable of the same meaning.

    Raises:
        CaptureError: when called: the function reads a value of a tensor on the host, or the call
            differs and no more captures are allowed.
    """
    if function is None:
        return lambda wrapped: Jit(wrapped, captures=captures, outputs=outputs)
    return Jit(function, captures=captures, outputs=outputs)


class TinyJit(Jit[P, R]):
    """`jit` with one signature: a call that differs from the captured one raises CaptureError.

    Args:
        function: see `jit`.
        prune: accepted for programs that say it; what no argument changes costs no replay more.
        optimize: accepted for programs that say it.
    """

    def __init__(
        self, function: Callable[P, R], *, prune: bool = False, optimize: bool = False
    ) -> None:
        super().__init__(function, captures=1)


def _match(captured: Captured, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound | None:
    try:
        return captured.match(_ambient(), args, kwargs)
    except Mismatch:
        return None


def _ambient() -> tuple[Any, ...]:
    """What every op may depend on besides its operands."""
    return (settings.current(), records_history(), Tensor.training)


def _capture(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], ring: int | None
) -> tuple[Any, Captured | None, str]:
    """Run `function` as a plain call, and return its result and what can be replayed, or why not.

    Raises: what the function raises; CaptureError when it reads a value on the host.
    """
    flat = flatten_call(args, kwargs)
    for tensor in flat.tensors:
        tensor.realize()
    ambient = _ambient()
    watcher = Watcher(lambda value: isinstance(value, TensorBase))
    watcher.add_function(function)
    arguments = _Arguments(flat)
    with capture.capturing() as seen, observe.observing() as observer:
        seen.pause = watcher.paused
        with watcher.watching():
            result = function(*args, **kwargs)
        returned = flatten(result, "result")
        realize.realize([tensor._version_to_realize() for tensor in returned.tensors])
        realize.realize(_pending(observer))
        made_late = _reason_to_wait(observer, seen)
    if made_late is not None:
        return result, None, made_late
    guards = watcher.guards()
    builder = _RecipeBuilder(flat, arguments, seen, observer, guards, returned)
    recipe = builder.build(ambient)
    return result, Captured(recipe, ring), ""


class _Arguments:
    """Where the tensor arguments lie, taken down before the call changes them."""

    def __init__(self, flat: Flat) -> None:
        self.specs = _specs(flat)
        self._whole = [tensor._storage.version.buffer for tensor in flat.tensors]

    def settle(self, seen: capture.Seen, fixed: set[int]) -> list[Buffer]:
        """Decide which of them may lie elsewhere at a replay, and return the program's inputs.

        Args:
            seen: what the call has run.
            fixed: arguments that may not.
        """
        ranges: list[Buffer] = []
        movable = [
            spec.part is not None and number not in fixed for number, spec in enumerate(self.specs)
        ]
        while True:
            ranges.clear()
            places: list[int] = []
            for spec, whole, can_move in zip(self.specs, self._whole, movable, strict=True):
                if whole is None:
                    raise InternalError("jit: a realized argument has no memory", got=spec.name)
                wanted = spec.part.within(whole) if can_move and spec.part is not None else whole
                places.append(_index_of(ranges, wanted))
            allowed = seen.movable(ranges)
            still = [
                before and allowed[place] for before, place in zip(movable, places, strict=True)
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
        if buffer is None or seen.has_made(buffer):
            return "it gave memory to a tensor that had none before the call"
    return None


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
    ) -> None:
        self.flat = flat
        self.arguments = arguments
        self.specs = arguments.specs
        self.inputs: list[Buffer] = []
        self.seen = seen
        self.observer = observer
        self.guards = guards
        self.returned = returned
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
            held=self._held(program),
            outputs=outputs,
            made=self._made,
            result=self.returned.tree,
            result_values=self.returned.values,
            ambient=ambient,
            orphans=self._orphans(returned_storages),
            tensor_type=self._tensor_type(),
        )

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
        if buffer is not None and self.seen.has_made(buffer):
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
            self._made_buffers.append(version.buffer)
            self._made.append(
                Made(
                    version.device,
                    kind.shape,
                    kind.dtype,
                    version.needs_gradient,
                    tuple(sorted(version.bindings or ())),
                )
            )
        return found

    def _held(self, program: capture.CapturedProgram) -> list[Held]:
        """The storages of held buffers, found through the versions that the runs have read."""
        slots = {id(buffer.memory): slot for slot, buffer in enumerate(program.held)}
        versions: dict[int, Version] = {}
        storages: dict[int, Storage] = {}
        for reference in self.observer.read:
            version = reference()
            if version is not None and version.buffer is not None:
                versions[id(version)] = version
        for written in self.observer.written:
            storage = written()
            if storage is not None and storage.version.buffer is not None:
                storages[id(storage)] = storage
        for owner in gc.get_referrers(*versions.values()) if versions else ():
            if isinstance(owner, Storage):
                storages[id(owner)] = owner
        found: list[Held] = []
        for storage in storages.values():
            buffer = storage.version.buffer
            slot = None if buffer is None else slots.get(id(buffer.memory))
            if slot is not None:
                is_written = len(self.inputs) + slot in program.written
                found.append(Held(storage, slot, storage.version.serial, is_written))
        return found

    def _check_lost_state(self, held: list[Any]) -> None:
        """Refuse state that the function replaces by new tensors instead of writing to it.

        Held memory that was there before the call, and that no version has after it, was read
        and then thrown away; the next call would read something else.
        """
        live: set[int] = set()
        for versions in (self.observer.read, self.observer.versions):
            for reference in versions:
                version = reference()
                if version is not None and version.buffer is not None:
                    live.add(id(version.buffer.memory))
        for written in self.observer.written:
            storage = written()
            if storage is not None and storage.version.buffer is not None:
                live.add(id(storage.version.buffer.memory))
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
            if buffer is None or self.seen.has_made(buffer):
                found.append(weakref.ref(storage))
        return found
