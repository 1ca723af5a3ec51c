"""What a captured function reads is watched, and a change is named."""

import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, jit
from tilework.engine import calls
from tilework.engine.guards import Guards, same_value
from tilework.engine.watcher import Watcher

LEVEL = 3
TABLE = {"a": 1, "b": 2}


class Leaf:
    """Stands for a tensor."""


class Layer:
    scale = 2

    def __init__(self, weight: Leaf) -> None:
        self.weight = weight
        self.unread = 0

    def __call__(self) -> object:
        return self.weight, self.scale


class Model:
    def __init__(self) -> None:
        self.layers = [Layer(Leaf()), Layer(Leaf())]
        self.mode = "fast"

    def run(self) -> list[object]:
        return [layer() for layer in self.layers] + [self.mode]


def watch(function: Callable[[], Any]) -> Guards:
    watcher = Watcher(lambda value: isinstance(value, Leaf))
    watcher.add_function(function)
    with watcher.watching():
        function()
    return watcher.guards()


def test_nothing_changed_is_none() -> None:
    assert watch(Model().run).changed() is None


def test_a_closure_variable_that_is_rebound_is_named() -> None:
    size = 4

    def function() -> int:
        return size + 1

    guards = watch(function)
    size = 5
    assert guards.changed() == "closure variable size: 4 became 5"


def test_functions_of_comprehensions_are_found_among_young_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches = []
    real = gc.get_referrers

    def counted(*objects: object) -> list[Any]:
        searches.append(objects)
        return real(*objects)

    def function() -> list[int]:
        own = len(TABLE)
        return [sum(own + number for number in range(2)) for _ in range(50)]

    monkeypatch.setattr(gc, "get_referrers", counted)
    watch(function)
    assert not searches  # each looks through all objects of the process


def test_a_closure_list_whose_item_changes_is_named() -> None:
    box = [Leaf()]

    def function() -> Leaf:
        return box[0]

    guards = watch(function)
    assert guards.changed() is None
    box[0] = Leaf()
    assert guards.changed() == "box: its items changed"


def test_a_global_that_is_rebound_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def function() -> int:
        return LEVEL

    guards = watch(function)
    monkeypatch.setitem(globals(), "LEVEL", 9)
    assert guards.changed() == "global LEVEL: 3 became 9"


def test_a_global_dictionary_is_watched_by_item(monkeypatch: pytest.MonkeyPatch) -> None:
    def function() -> int:
        return TABLE["a"]

    guards = watch(function)
    monkeypatch.setitem(TABLE, "a", 7)
    assert guards.changed() == "TABLE: its items changed"


def test_an_attribute_read_by_a_called_method_is_named() -> None:
    model = Model()
    guards = watch(model.run)
    model.layers[1].weight = Leaf()
    assert guards.changed() == "Layer.weight: a Leaf became a Leaf"


def test_an_attribute_read_inside_a_loop_is_named() -> None:
    blocks = [SimpleNamespace(w=1), SimpleNamespace(w=2)]

    def function() -> int:
        return sum(block.w for block in blocks)

    guards = watch(function)
    blocks[1].w = 5
    changed = guards.changed()
    assert changed is not None
    assert changed.endswith(".w: 2 became 5")


def test_an_attribute_that_no_code_reads_may_change() -> None:
    model = Model()
    guards = watch(model.run)
    model.layers[0].unread = 1
    assert guards.changed() is None


def test_a_list_that_grows_is_named() -> None:
    model = Model()
    guards = watch(model.run)
    model.layers.append(Layer(Leaf()))
    changed = guards.changed()
    assert changed is not None
    assert "layers" in changed


def test_a_class_attribute_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    guards = watch(Model().run)
    monkeypatch.setattr(Layer, "scale", 3)
    assert guards.changed() == "Layer.scale: 2 became 3"


def test_what_the_function_itself_changes_counts_as_changed() -> None:
    counter = SimpleNamespace(steps=0)

    def function() -> None:
        counter.steps += 1

    assert watch(function).changed() == "counter.steps: 0 became 1"


def test_a_default_is_watched() -> None:
    def function(factor: int = 2) -> int:
        return factor

    guards = watch(function)
    function.__defaults__ = (3,)
    changed = guards.changed()
    assert changed is not None
    assert "__defaults__" in changed


def test_an_equal_number_of_another_identity_is_no_change() -> None:
    state = SimpleNamespace(size=10**6)

    def function() -> int:
        return int(state.size)

    guards = watch(function)
    state.size = int("1000000")
    assert guards.changed() is None


def test_tensors_that_are_reached_are_listed() -> None:
    model = Model()
    leaves = watch(model.run).leaves
    assert {id(leaf) for leaf in leaves} == {id(layer.weight) for layer in model.layers}


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [(0.0, -0.0, False), (float("nan"), float("nan"), True), (1, True, False), (1, 1.0, False),
     ("a", "a", True), (2**70, 2**70, True)],
)  # fmt: skip
def test_scalars_are_compared_by_type_and_bits(a: object, b: object, same: bool) -> None:
    assert same_value(a, b) is same


def test_the_profiler_of_somebody_else_goes_on() -> None:
    import sys

    seen: list[str] = []
    sys.setprofile(lambda frame, event, argument: seen.append(event))
    try:
        watch(Model().run)
        assert sys.getprofile() is not None
    finally:
        sys.setprofile(None)
    assert "call" in seen


def test_a_profiler_in_c_goes_on_after_the_capture() -> None:
    import cProfile
    import pstats

    profiler = cProfile.Profile()
    profiler.enable()
    try:
        watch(Model().run)
        sorted([2, 1])
    finally:
        profiler.disable()
    names = {name for _, _, name in pstats.Stats(profiler).stats}  # type: ignore[attr-defined]
    assert any("sorted" in name for name in names)


def test_the_contents_of_a_small_array_are_watched() -> None:
    table = np.arange(4)

    def function() -> int:
        return int(table[1])

    guards = watch(function)
    assert guards.changed() is None
    table[1] = 9
    assert guards.changed() == "table: the contents of the array changed"


def test_large_containers_and_arrays_are_listed_as_unseen() -> None:
    many, wide = list(range(5000)), np.zeros(100_000)

    def function() -> int:
        return many[0] + int(wide[0])

    guards = watch(function)
    assert sorted(guards.unseen) == ["the 5000 items of many", "the contents of the array wide"]


def count_collections(phase: str, info: dict[str, int]) -> None:
    """Reads and writes a global of its own, as other tools' callbacks do."""
    global LEVEL
    LEVEL += 1


def test_what_the_garbage_collector_calls_is_no_part_of_the_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(globals(), "LEVEL", 3)
    gc.callbacks.append(count_collections)
    before = list(gc.callbacks)
    try:
        guards = watch(lambda: gc.collect(0))
        gc.collect(0)
        assert gc.callbacks == before
    finally:
        gc.callbacks.remove(count_collections)
    assert LEVEL > 4
    assert guards.changed() is None


class Collecting(list[Any]):
    """Callbacks of a collector that runs right after the first of them is there."""

    def _collect(self) -> None:
        if len(self) == 1:
            for phase in ("start", "stop"):
                for callback in self:
                    callback(phase, {})

    def insert(self, index: Any, callback: Any) -> None:
        super().insert(index, callback)
        self._collect()

    def append(self, callback: Any) -> None:
        super().append(callback)
        self._collect()


def test_a_collection_while_watching_begins_hides_no_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "gc", SimpleNamespace(callbacks=Collecting()))
    collector = calls.Collector()
    collector.follow()
    assert not collector.runs


def test_an_argument_that_a_comprehension_uses_is_not_listed() -> None:
    argument = Leaf()

    def function(x: Leaf) -> list[object]:
        several = [x, x]
        return [(x, several, k) for k in range(2)]

    watcher = Watcher(lambda value: isinstance(value, Leaf))
    with watcher.watching():
        function(argument)
    assert watcher.guards().leaves == ()


def test_a_tensor_of_a_closure_that_stays_is_listed_though_an_inner_function_uses_it_too() -> None:
    kept = Leaf()

    def function(x: Leaf) -> list[object]:
        return [(x, kept) for _ in range(2)]

    watcher = Watcher(lambda value: isinstance(value, Leaf))
    with watcher.watching():
        function(kept)
    assert watcher.guards().leaves == (kept,)


def test_a_generator_that_the_function_makes_for_itself_is_no_draw() -> None:
    def function() -> list[float]:
        draw = np.random.default_rng(3)
        return [draw.random() for _ in range(2)]

    assert watch(function).changed() is None


def test_functions_that_a_capture_calls_have_their_locals() -> None:
    found: list[dict[str, object]] = []

    def inner(name: str, number: int) -> dict[str, object]:
        total = number + 1
        assert total
        return locals()

    def outer(x: Tensor) -> Tensor:
        found.append(inner("a", 1))
        return x + 1

    step = jit(outer)
    step(Tensor([0.0]).realize())
    assert found == [{"name": "a", "number": 1, "total": 2}]
