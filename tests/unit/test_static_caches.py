"""Every cache of the sources is bounded, or over a domain that is closed (GEN-04)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "tilework"

# Caches of functions without a size, each with the reason why their arguments are few.
CLOSED_DOMAIN = {
    "backends/native.py:_baseline": "the two kinds of processors",
    "dtypes/promotion.py:promote": "pairs of dtypes, which are fixed",
    "ir/interpret/floats.py:rounder": "dtypes",
    "ir/interpret/floats.py:small_values": "float dtypes of at most 16 bits",
    "ir/interpret/scalars.py:cast_function": "pairs of dtypes",
    "ir/interpret/scalars.py:op_function": "elementwise ops and dtypes",
    "ir/rules/casts.py:holds_every_value": "pairs of dtypes",
    "ir/text/printer.py:_field_names": "classes of attributes",
    "ir/text/printer.py:_sized_fields": "classes of attributes",
    "nn/state/gguf_blocks.py:_book": "names of code books",
    "runtime/native/shipped.py:_content": "one file of the package",
    "testing/kernels.py:_toolchain": "two toolchains and the levels of x86-64",
    "testing/kernels.py:target": "the levels of x86-64",
}
# Module-level containers that begin empty and are filled while programs run.
BOUNDED = {
    "backends/native.py:_provided": "the two kinds of processors",
    "backends/registry.py:_INTERFACES": "the ways to devices elsewhere: one",
    "base/forks.py:_locks": "weak: as many as there are locks",
    "base/forks.py:_held": "the locks of `_outer`, between the two sides of a fork",
    "base/forks.py:_outer": "locks of modules, added at import",
    "base/record_classes.py:_shown": "records whose text is being made",
    "base/settings.py:_NAMES_BY_EFFECT": "the values of `Affects`",
    "codegen/plan/tilings.py:_known": "_MOST_KNOWN, then cleared",
    "dtypes/table.py:SHOWN_NAMES": "dtypes",
    "engine/device.py:on_close": "functions, added at import",
    "engine/execute.py:_placed_before": "_MOST_PLACED, then cleared",
    "engine/faults.py:_checked": "_MOST_CHECKED, the oldest dropped",
    "engine/limits.py:_made_before": "sets of kinds of devices",
    "engine/splits.py:_kept": "_MOST_KEPT, then cleared",
    "frontends/onnx/host.py:_RULES": "rules, added at import",
    "frontends/onnx/registry.py:_RULES": "rules, added at import",
    "ir/build.py:_small": "_SMALL integers",
    "ir/digest.py:_names": "classes of attributes",
    "ir/node.py:_orders": "_MOST_ORDERS, then cleared",
    "ir/ops/define.py:OPS": "ops, added at import",
    "ir/ops/define.py:_KEEPING_TYPE": "ops, added at import",
    "ir/verify.py:_COUNTS": "ops, added at import",
    "runtime/cuda/contexts.py:_waiting": "cards that hang while they are closed, one thread each",
    "runtime/buffer.py:_watches": "one a watched buffer, gone with it",
    "runtime/reclaim.py:waiting": "memory whose owner is gone, until the next allocation",
    "runtime/links.py:_current": "the group that this process belongs to",
    "runtime/links.py:_shared": "what the group of this process agreed on",
    "schedule/cache.py:_kept": "CAPACITY, the least recently used goes",
    "tensor/iteration.py:_replays": "_MOST_REPLAYS, the least recently used goes",
    "tensor/autograd/table.py:NO_GRADIENT": "ops, added at import",
    "tensor/autograd/table.py:RULES": "ops, added at import",
    "tensor/batching.py:RULES": "ops, added at import",
    "tensor/host.py:_known_dtypes": "dtypes of NumPy that have one of ours",
    "tensor/realize.py:_states": "counters of random numbers, one a device",
    "tensor/signature.py:_parts": "_MOST_PARTS, then cleared",
    "tensor/realize.py:_differentiated": "weak: as many as losses wait for their step",
    "tensor/signature.py:_places": "weak: as many as captures hold",
    "toolchain/llvm.py:_loaded": "one binding",
    "toolchain/llvm.py:_mapping": "one thread",
}
CONTAINERS = {
    "dict", "list", "set", "OrderedDict", "defaultdict", "deque", "WeakSet", "WeakKeyDictionary",
    "WeakValueDictionary",
}  # fmt: skip


def unbounded_decorators(name: str, tree: ast.Module) -> Iterator[str]:
    """Functions with arguments under `cache`, or under `lru_cache` without a size."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        arguments = node.args
        if not (arguments.args or arguments.posonlyargs or arguments.kwonlyargs):
            continue
        for decorator in node.decorator_list:
            text = ast.unparse(decorator).removeprefix("functools.")
            if text == "cache" or text.replace(" ", "").startswith("lru_cache(maxsize=None"):
                yield f"{name}:{node.name}"


def empty_containers(name: str, tree: ast.Module) -> Iterator[str]:
    """Names of a module that stand for a container without items: it is filled later."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            target, value = node.target, node.value
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            target, value = node.targets[0], node.value
        else:
            continue
        is_empty_literal = (isinstance(value, ast.Dict) and not value.keys) or (
            isinstance(value, ast.List) and not value.elts
        )
        is_empty_call = (
            isinstance(value, ast.Call)
            and ast.unparse(value.func).rsplit(".", 1)[-1] in CONTAINERS
            and not value.args
            and not any(word.arg == "maxlen" for word in value.keywords)
        )
        if is_empty_literal or is_empty_call:
            yield f"{name}:{target.id}"


def found_by(rule: object) -> set[str]:
    found: set[str] = set()
    for path in sorted(SOURCES.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= set(rule(path.relative_to(SOURCES).as_posix(), tree))  # type: ignore[operator]
    return found


def test_GEN_04_each_cache_of_a_function_has_a_size_or_few_arguments() -> None:
    assert found_by(unbounded_decorators) == set(CLOSED_DOMAIN)


def test_GEN_04_each_container_of_a_module_is_bounded() -> None:
    assert found_by(empty_containers) == set(BOUNDED)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("@cache\ndef f(x): ...", 1),
        ("@functools.cache\ndef f(x): ...", 1),
        ("@lru_cache(maxsize=None)\ndef f(x): ...", 1),
        ("@lru_cache(maxsize=8)\ndef f(x): ...", 0),
        ("@cache\ndef f(): ...", 0),
    ],
)
def test_GEN_04_the_lint_sees_caches_of_functions(text: str, count: int) -> None:
    assert len(list(unbounded_decorators("x.py", ast.parse(text)))) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("x = {}", 1),
        ("x: dict[int, int] = {}", 1),
        ("x = OrderedDict()", 1),
        ("x = weakref.WeakSet()", 1),
        ("x = []", 1),
        ("x = deque(maxlen=3)", 0),
        ("x = {1: 2}", 0),
    ],
)
def test_GEN_04_the_lint_sees_containers(text: str, count: int) -> None:
    assert len(list(empty_containers("x.py", ast.parse(text)))) == count
