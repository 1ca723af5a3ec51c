"""Replays whose checks all hold, as one function made for one capture.

`Captured` checks each call with loops that can say what differs.  For a capture that is replayed
often, `make_quick` writes the same checks out as straight Python: each thing that was watched is
compared by identity, one line each.  Such a function either replays, or changes nothing and
returns `MISS`; then the loops decide.  So it may refuse any call, and must accept none that they
would not: whatever is rare (loans, views that move, contents that somebody needs after a write) is
left to them, and what it accepts of the common rest is what they would.

The text is made of numbers and of names that stand for objects, never of the user's text, but for
attribute names that are plain identifiers.
"""

from __future__ import annotations

import keyword
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from tilework.base import settings, trace
from tilework.engine import capture
from tilework.engine.expressions import FUNCTIONS
from tilework.engine.guards import MISSING, has_same_contents
from tilework.engine.stats import COUNTERS
from tilework.runtime import reclaim
from tilework.tensor import observe, realize
from tilework.tensor.quick_arguments import ArgumentWriter
from tilework.tensor.signature import Leaf, Tree
from tilework.tensor.version import Storage, keeps_history

if TYPE_CHECKING:
    import threading

    from tilework.engine.captured_program import CapturedProgram, FastTable
    from tilework.engine.latency import Latency
    from tilework.engine.link import Place
    from tilework.tensor.captured import Captured
    from tilework.tensor.recipe import Output, Recipe

Quick = Callable[..., Any]
"""Takes the positional arguments as a tuple, and the keywords as a dictionary if there are any."""

MISS: Final = object()
#: Checks that are written out one by one; captures with more keep the loops.
_MOST_CHECKS: Final = 2000
#: Items of one container that are written out.
_MOST_ITEMS: Final = 64


def make_quick(
    captured: Captured,
    lock: threading.RLock,
    training: type[Any],
    latency: Latency | None = None,
) -> Quick | None:
    """Return the function that replays `captured`, or None.

    Args:
        captured: a capture that has been replayed, so that its program is linked.
        lock: held during a replay.
        training: what has the attribute `training` that the capture was made under.
        latency: gets the times of each call.
    """
    recipe = captured.recipe
    fast = recipe.program.fast
    if fast is None or fast.leases or not captured.is_plain:
        return None
    layouts = [spec.layout for spec in recipe.tensors] + [made.layout for made in recipe.made]
    if any(layout is not None for layout in layouts):
        return None  # over several devices
    if recipe.gradients or not _can_rebuild(recipe.result, recipe.outputs):
        return None
    if len(recipe.guards.entries) + len(recipe.held) > _MOST_CHECKS:
        return None
    writer = _Writer(captured, recipe.program, fast, lock, training, latency)
    return writer.result() if writer.arguments.can_write() else None


def _can_rebuild(tree: Tree, outputs: Iterable[Any]) -> bool:
    if any(row.kind not in ("made", "argument", "object", "view", "storage") for row in outputs):
        return False
    waiting: list[Tree] = [tree]
    while waiting:
        top = waiting.pop()
        if not isinstance(top, Leaf):
            if top.kind not in (list, tuple, dict) and not hasattr(top.kind, "_fields"):
                return False
            waiting.extend(top.items)
    return True


class _Writer:
    """The text of one function, and what its names stand for."""

    def __init__(
        self,
        captured: Captured,
        program: CapturedProgram,
        fast: FastTable,
        lock: threading.RLock,
        training: type[Any],
        latency: Latency | None,
    ) -> None:
        self.captured = captured
        self.latency = latency
        self.recipe = captured.recipe
        self.program = program
        self.fast = fast
        self.writes = bool(program.written)
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            **FUNCTIONS,
            "MISS": MISS,
            "COUNTERS": COUNTERS,
            "NOTHING": {},
            "Storage": Storage,
            "acquire": lock.acquire,
            "active": capture.active.get,
            "captured": captured,
            "clock": perf_counter_ns,
            "count_references": sys.getrefcount,
            "current": settings.current,
            "enabled": trace.enabled,
            "fast": fast,
            "kind": self.recipe.tensor_type,
            "new": object.__new__,
            "observe": observe,
            "program": program,
            "reclaim": reclaim,
            "take": captured.results.take,
            "records_history": keeps_history.get,
            "release": lock.release,
            "training": training,
            "words": fast.table.words,
            "writing": realize.exclusive(),
        }
        self.arguments = ArgumentWriter(captured, self.miss, self.check, self.name_of)
        self._made_storages: set[str] = set()
        self._reused = _shown_alone(self.recipe)

    def result(self) -> Quick:
        self.lines += [
            "def replay(args, kwargs=NOTHING):",
            *(["    n0 = clock()"] if self.latency is not None else []),
            "    if active() is not None or enabled() or observe.active: return MISS",
            "    acquire()",
            "    try:",
        ]
        if self.writes:
            self.add(1, "with writing:")
        self.add(2, "try:")
        self._write_surroundings()
        self.arguments.write()
        self._write_guards()
        self._write_held()
        self.add(2, "except (AttributeError, KeyError, TypeError, ValueError): return MISS")
        self._write_stamp(1)
        self._write_results()
        self._write_run()
        tree = self._tree(self.recipe.result)
        if self.latency is None:
            self.add(2, f"return {tree}")
        else:
            self.add(2, f"made = {tree}")
            # The launch returns when all is done, so that nothing is left to wait for.
            self.add(2, f"{self.name_of(self.latency.note_call)}([n0, n1, n2, n3, n3])")
            self.add(2, "return made")
        self.lines.append("    finally: release()")
        names = self.names
        # The text is made above, of numbers and names alone.  Its file tells those who watch what
        # a function calls that it is ours.
        exec(compile("\n".join(self.lines), f"{__file__}: replay", "exec"), names)
        made: Quick = names.pop("replay")  # else it would refer to itself
        return made

    def _write_stamp(self, number: int) -> None:
        """Look at the clock between two parts of the call, if they are timed."""
        if self.latency is not None:
            self.add(2, f"n{number} = clock()")

    def add(self, depth: int, line: str) -> None:
        """A line in the function; where it writes, everything is in one block more."""
        self.lines.append("    " * (depth + self.writes) + line)

    def check(self, line: str) -> None:
        """A line among the checks."""
        self.add(3, line)

    def miss(self, condition: str) -> None:
        """Refuse the call if `condition` holds."""
        self.add(3, f"if {condition}: return MISS")

    def name_of(self, thing: Any) -> str:
        """A name for an object, to be compared by identity."""
        if thing is None or thing is True or thing is False:
            return repr(thing)
        name = f"o{len(self.names)}"
        self.names[name] = thing
        return name

    # --- the checks --------------------------------------------------------------------------

    def _write_surroundings(self) -> None:
        current, history, is_training = self.recipe.ambient
        self.miss(f"program.fast is not fast or current() is not {self.name_of(current)}")
        self.miss(f"records_history() is not {self.name_of(history)}")
        self.miss(f"training.training is not {self.name_of(is_training)}")
        self.miss("observe.moves != captured.moves")
        for device in self.program.open_devices():
            self.miss(f"{self.name_of(device)}.is_closed")

    def _write_guards(self) -> None:
        for entry in self.recipe.guards.entries:
            owner = self.name_of(entry.owner)
            if entry.value is MISSING and entry.kind == "item":
                self.miss(f"{self.name_of(entry.key)} in {owner}")
            elif entry.value is MISSING and entry.kind in ("slot", "class"):
                self.miss(f"hasattr({owner}, {self.name_of(entry.key)})")
            elif entry.kind == "item":
                self.miss(f"{owner}[{self.name_of(entry.key)}] is not {self.name_of(entry.value)}")
            elif entry.kind == "cell":
                self.miss(f"{owner}.cell_contents is not {self.name_of(entry.value)}")
            elif entry.kind in ("slot", "class"):
                self.miss(f"{_attribute(owner, entry.key)} is not {self.name_of(entry.value)}")
            elif entry.kind == "items" and len(entry.value) <= _MOST_ITEMS:
                self._write_items(owner, owner, entry.value)
            elif entry.kind == "pairs" and len(entry.value[1]) <= _MOST_ITEMS:
                keys, values = entry.value
                self.miss(f"[*{owner}] != {self.name_of(keys)}")
                self._write_items(owner, f"{owner}.values()", values)
            else:
                self.miss(f"not {self.name_of(has_same_contents)}({self.name_of(entry)})")

    def _write_items(self, owner: str, items: str, values: Sequence[object]) -> None:
        """Refuse other items than `values`, in their order."""
        if not values:
            self.miss(owner)
            return
        names = [f"i{number}" for number in range(len(values))]
        self.add(3, f"{', '.join(names)}, = {items}")  # another number of them raises ValueError
        found = zip(names, values, strict=True)
        self.miss(" or ".join(f"{name} is not {self.name_of(value)}" for name, value in found))

    def _write_held(self) -> None:
        for held in self.recipe.held:
            version = f"{self.name_of(held.storage)}.version"
            self.miss(f"{version}.buffer is not {self.name_of(held)}.buffer")
            if held.is_written:
                # The storage's slot and the argument; whoever else has it needs the old contents.
                self.miss(f"count_references({version}) != 2")
        for held in self.captured.constant_held:
            self.miss(f"{self.name_of(held.storage)}.version.needs_gradient")
        packed = self.program.packed
        if packed is not None and packed.sources:
            seen = self.name_of(packed.seen)
            for number, memory in enumerate(packed.sources):
                self.miss(f"{self.name_of(memory)}.changes != {seen}[{number}]")

    # --- the replay --------------------------------------------------------------------------

    def _write_results(self) -> None:
        """Take memory that nobody uses: `r0`, and something of it that keeps it taken.

        Where a result is shown by one tensor alone, and nobody has this tensor any more or has
        left a trace in it, the tensor is handed out again too: `y0` is it, or None.
        """
        for number, pool in enumerate(self.captured.results.pools):
            result, name = f"r{number}", self.name_of(pool)
            if number in self._reused:
                self._write_reuse(number, name)
                self.add(2, "else:")
                depth = 3
                self.add(depth, f"y{number} = None")
            else:
                depth = 2
            self.add(depth, f"for {result} in {name}:")
            self.add(depth + 1, f"{result}.tensor = {result}.storage = None")
            self.add(depth + 1, f"v{number} = {result}.version")
            # One reference to the version more than in `Result.is_free`: the local name.
            free = _counts(result, version=3, buffer=3, memory=3)
            whole = f"v{number}.buffer is {result}.buffer"
            self.add(depth + 1, f"if {free} and v{number}.leaves is None and {whole}: break")
            taken = f"{result} = take({number}); v{number} = {result}.version"
            self.add(depth, f"else: {taken}")
            if self.recipe.made[number].variables:
                bindings = self._bindings(self.recipe.made[number].variables)
                self.add(2, f"v{number}.bindings = {bindings}")
        self.add(2, "if reclaim.waiting: reclaim.run()")

    def _write_reuse(self, number: int, pool: str) -> None:
        result, tensor, storage = f"r{number}", f"y{number}", f"s{number}"
        row = self._reused[number]
        self.add(2, f"for {result} in {pool}:")
        self.add(3, f"{tensor} = {result}.tensor; {storage} = {result}.storage")
        # Our slot, the local name and the argument; what a tensor has also refers to its parts.
        free = _counts(result, tensor=3)
        rest = _counts(result, storage=4, version=3, buffer=3, memory=3)
        self.add(3, f"if {free} and {tensor} is not None and {rest} and (")
        self.add(4, f"{tensor}._storage is {storage} and {storage}.version is {result}.version")
        self.add(4, f"and {result}.version.buffer is {result}.buffer")
        self.add(4, f"and {storage}.version.leaves is None and {tensor}._bindings is None")
        self.add(4, f"and {tensor}._wants_gradient is None and {tensor}._grad is None")
        self.add(4, f"and {tensor}._type is {self.name_of(row.type)} and not {tensor}._chain")
        # The version alone refers to the storage weakly (2: its list, and what asks).
        self.add(4, f"and {tensor}.__weakref__ is None")
        self.add(4, f"and count_references({storage}.__weakref__) == 2")
        self.add(3, "): break")

    def _write_run(self) -> None:
        """Write the addresses and run.  Nothing in between lets other code run on this thread."""
        count = self.program.num_inputs
        for slot in sorted(self.program.written):
            if slot >= count:
                memory = self.name_of(self.program.held[slot - count].memory)
                self.add(2, f"{memory}.changes += 1")
            else:
                self.add(2, f"m{slot}.changes += 1")
        for source, address in self.arguments.addresses.items():
            self._write_place(self.fast.inputs[source], address)
        for number, place in enumerate(self.fast.outputs):
            self._write_place(place, f"r{number}.address")
        table = self.fast.table
        values = self.arguments.values
        for word, name in table.variables:
            self.add(2, f"words[{word}] = {values[name]}")
        for word, tasks in table.tasks:
            self.add(2, f"words[{word}] = {tasks.as_text(values)}")
        self._write_stamp(2)
        if not self.writes:
            self._write_launch(2)
            self._write_stamp(3)
            return
        self.add(2, "try:")
        self._write_launch(3)
        self.add(2, "except BaseException:")
        tensors = "".join(f"t{number}, " for number in range(len(self.recipe.tensors)))
        self.add(3, f"captured.ruin_state(({tensors}))")
        self.add(3, "raise")
        self._write_stamp(3)

    def _write_launch(self, depth: int) -> None:
        table = self.fast.table
        function = table.short_function()
        if function is None:
            self.add(depth, "COUNTERS.replays += 1")
            self.add(depth, f"{self.name_of(table.launch)}(())")
            return
        self.add(depth, f"fault = {self.name_of(function)}()")
        self.add(depth, "COUNTERS.replays += 1; COUNTERS.launches += 1")
        self.add(depth, f"COUNTERS.kernels += {table.table.count}")
        self.add(depth, f"if fault: {self.name_of(table.raise_fault)}()")

    def _write_place(self, place: Place, address: str) -> None:
        name = self.name_of(place)
        self.add(2, f"if {address} != {name}.address:")
        self.add(3, f"{name}.address = {address}")
        for word, offset in place.words:
            self.add(3, f"words[{word}] = {address} + {offset}")

    def _tree(self, tree: Tree) -> str:
        """The expression that builds a part of the result; tensors are made before it."""
        if isinstance(tree, Leaf):
            if tree.kind == "tensor":
                return self._tensor(tree.number)
            return self.name_of(self.recipe.result_values[tree.number])
        items = [self._tree(item) for item in tree.items]
        if tree.keys is not None:
            pairs = zip(tree.keys, items, strict=True)
            return "{" + ", ".join(f"{self.name_of(key)}: {item}" for key, item in pairs) + "}"
        if tree.kind is list:
            return f"[{', '.join(items)}]"
        if tree.kind is tuple:
            return f"({''.join(f'{item}, ' for item in items)})"
        return f"{self.name_of(tree.kind)}({', '.join(items)})"

    def _tensor(self, number: int) -> str:
        row = self.recipe.outputs[number]
        if row.kind == "argument":
            return f"t{row.number}"
        if row.kind == "object":
            return self.name_of(row.what)
        storage, made = f"s{row.number}", f"z{number}"
        if row.kind == "view":
            storage = f"t{row.number}._storage"
        elif row.kind == "storage":
            storage = self.name_of(row.what)
        is_reused = row.kind == "made" and row.number in self._reused
        depth = 2
        if is_reused:
            made = f"y{row.number}"
            self.add(2, f"if {made} is None:")
            depth = 3
        if row.kind == "made" and storage not in self._made_storages:
            self._made_storages.add(storage)
            self.add(depth, f"{storage} = Storage(v{row.number})")
        self.add(depth, f"{made} = new(kind); {made}._storage = {storage}")
        bindings = self._bindings(row.variables)
        self.add(depth, f"{made}._chain = {self.name_of(row.chain)}; {made}._bindings = {bindings}")
        self.add(depth, f"{made}._type = {self.name_of(row.type)}; {made}._wants_gradient = None")
        self.add(depth, f"{made}._grad = {made}._seen_from = {made}._seen_node = None")
        if is_reused:
            self.add(depth, f"r{row.number}.tensor = {made}; r{row.number}.storage = {storage}")
        return made

    def _bindings(self, variables: Sequence[str]) -> str:
        """The values that a result depends on."""
        if not variables:
            return "None"
        values: Mapping[str, str] = self.arguments.values
        pairs = [f"{self.name_of(name)}: {values[name]}" for name in variables]
        return "{" + ", ".join(pairs) + "}"


def _counts(result: str, **expected: int) -> str:
    """The condition that nobody else refers to these attributes of a result."""
    # Read from the attribute, since a name may be counted or not, as the interpreter likes.
    return " and ".join(
        f"count_references({result}.{name}) == {count}" for name, count in expected.items()
    )


def _shown_alone(recipe: Recipe) -> dict[int, Output]:
    """The results of the program that exactly one tensor shows, as they are, by number."""
    rows = [row for row in recipe.outputs if row.kind == "made"]
    numbers = [row.number for row in rows]
    if recipe.tensor_type.__dictoffset__:  # a tensor may have attributes that nobody looks at
        return {}
    return {
        row.number: row
        for row in rows
        if not (row.chain or row.variables or recipe.made[row.number].variables)
        and numbers.count(row.number) == 1
    }


def _attribute(owner: str, key: str) -> str:
    if key.isascii() and key.isidentifier() and not keyword.iskeyword(key):
        return f"{owner}.{key}"
    return f"getattr({owner}, {key!r})"
