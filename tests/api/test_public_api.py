"""Names and signatures of the public API, compared with a snapshot, so that a change shows.

`pytest tests/api --update-golden` rewrites the snapshot; the diff is then part of the review.
"""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import tilework

SNAPSHOT = Path(__file__).parent / "public.txt"
PUBLIC = (
    "tilework", "tilework.distributed", "tilework.nn", "tilework.nn.functional",
    "tilework.nn.distributions", "tilework.nn.func", "tilework.nn.init", "tilework.nn.optim",
    "tilework.nn.state", "tilework.nn.utils",
    "tilework.nn.utils.parametrize", "tilework.nn.utils.rnn", "tilework.onnx",
)  # fmt: skip
EXTENSION = (
    "tilework.runtime.driver",
    "tilework.render.base",
    "tilework.target.spec",
    "tilework.toolchain.base",
)


def signature_of(item: object) -> str:
    """The parameters with their defaults; annotations are the type checker's business."""
    try:
        signature = inspect.signature(item)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    bare = [
        parameter.replace(
            annotation=inspect.Parameter.empty,
            default=parameter.default
            if isinstance(parameter.default, int | float | str | tuple | None)
            or parameter.default is inspect.Parameter.empty
            else "...",
        )
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def members_of(kind: type) -> Iterator[str]:
    for name, item in sorted(inspect.getmembers(kind)):
        if name.startswith("_") or name == "mro":
            continue
        if isinstance(inspect.getattr_static(kind, name), property):
            yield f"{name}: property"
        elif callable(item):
            yield f"{name}{signature_of(item)}"


def names_of(module: ModuleType) -> list[str]:
    declared = getattr(module, "__all__", None)
    if declared is not None:
        return sorted(declared)
    return sorted(
        name
        for name, item in vars(module).items()
        if not name.startswith("_") and getattr(item, "__module__", "") == module.__name__
    )


def lines_of(module_name: str) -> Iterator[str]:
    module = importlib.import_module(module_name)
    for name in names_of(module):
        item = getattr(module, name)
        if inspect.isclass(item):
            yield f"{module_name}.{name}{signature_of(item)}"
            if not issubclass(item, BaseException):
                yield from (f"{module_name}.{name}.{line}" for line in members_of(item))
        elif inspect.ismodule(item):
            yield f"{module_name}.{name}: module"
        elif callable(item):
            yield f"{module_name}.{name}{signature_of(item)}"
        else:
            yield f"{module_name}.{name}: {type(item).__name__}"


def test_the_public_names_are_those_of_the_snapshot(request: pytest.FixtureRequest) -> None:
    lines = [line for name in (*PUBLIC, *EXTENSION) for line in lines_of(name)]
    text = "\n".join(lines) + "\n"
    if request.config.getoption("--update-golden"):
        SNAPSHOT.write_text(text, encoding="utf-8")
    assert text == SNAPSHOT.read_text(encoding="utf-8"), "run pytest tests/api --update-golden"


def test_errors_and_settings_are_public() -> None:
    assert {"errors", "settings"} <= set(names_of(tilework))
