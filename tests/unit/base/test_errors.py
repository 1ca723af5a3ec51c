import copy
import inspect
from collections.abc import Iterator

import pytest

from tilework.base import errors
from tilework.base.errors import TileworkError


def all_errors() -> Iterator[type[TileworkError]]:
    for item in vars(errors).values():
        if inspect.isclass(item) and issubclass(item, TileworkError):
            yield item


ALL = list(all_errors())


def test_message_shows_each_known_detail_on_its_line() -> None:
    error = errors.ShapeError(
        "reduce: axis 2 is out of range",
        got="shape (3, 4), axes (2,)",
        expected="each axis in [0, 2)",
        try_="axis=1",
        created_at="model.py:7",
    )
    assert str(error) == (
        "reduce: axis 2 is out of range\n"
        "  got: shape (3, 4), axes (2,)\n"
        "  expected: each axis in [0, 2)\n"
        "  try: axis=1\n"
        "  created at: model.py:7"
    )


def test_unknown_details_leave_no_line() -> None:
    assert str(errors.DTypeError("add: dtypes differ")) == "add: dtypes differ"


def test_a_detail_of_zero_is_shown() -> None:
    assert str(errors.ShapeError("x: y", got=0)) == "x: y\n  got: 0"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_each_error_takes_the_three_details(kind: type[TileworkError]) -> None:
    error = kind("op: wrong", got="a", expected="b", try_="c")
    assert "op: wrong\n  got: a\n  expected: b\n  try: c" in str(error)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_each_error_survives_a_copy_as_it_does_a_process_border(kind: type[TileworkError]) -> None:
    error = kind("op: wrong", got="a")
    error.note = "kept"  # type: ignore[attr-defined]
    twin = copy.copy(error)
    assert (type(twin), str(twin), vars(twin)) == (kind, str(error), vars(error))


@pytest.mark.parametrize(
    ("kind", "python_type"),
    [
        (errors.ShapeError, ValueError),
        (errors.DTypeError, TypeError),
        (errors.IndexingError, IndexError),
        (errors.SettingsError, ValueError),
        (errors.ModelFileError, ValueError),
        (errors.AliasError, ValueError),
        (errors.BoundsError, IndexError),
        (errors.PlanError, ValueError),
        (errors.PermissionDeniedError, PermissionError),
        (errors.OutOfMemoryError, MemoryError),
        (errors.DeviceTimeoutError, TimeoutError),
    ],
)
def test_the_python_type_catches_it_too(
    kind: type[TileworkError], python_type: type[Exception]
) -> None:
    with pytest.raises(python_type, match="op: wrong"):
        raise kind("op: wrong")


@pytest.mark.parametrize(
    ("kind", "parent"),
    [
        (errors.CaptureError, errors.UserError),
        (errors.RenderError, errors.UnsupportedError),
        (errors.CompileError, errors.ToolchainError),
        (errors.RollbackError, errors.DeviceError),
        (errors.VerifyError, errors.InternalError),
    ],
)
def test_families(kind: type[TileworkError], parent: type[TileworkError]) -> None:
    assert issubclass(kind, parent)


def test_each_error_has_a_docstring() -> None:
    assert [kind for kind in ALL if not kind.__doc__] == []


def test_an_unavailable_device_gives_its_reason() -> None:
    error = errors.DeviceUnavailableError("CUDA: cannot open", reason="no driver library")
    assert error.reason == "no driver library"
    assert "got: no driver library" in str(error)


def test_a_timeout_carries_both_spans() -> None:
    error = errors.DeviceTimeoutError("CPU: stuck", waited=3.0, last_progress=2.0)
    assert (error.waited, error.last_progress) == (3.0, 2.0)


def test_a_cycle_is_drawn_as_a_path() -> None:
    error = errors.ScheduleCycleError("order: a circle", path=("a", "b", "a"))
    assert "got: a -> b -> a" in str(error)


def test_a_compile_error_shows_command_source_and_log() -> None:
    error = errors.CompileError(
        "clang: failed", command=["clang", "-c"], source_path="k.c", log="k.c:1: no\n"
    )
    assert str(error).splitlines()[1:] == [
        "  command: clang -c",
        "  source: k.c",
        "  log:",
        "    k.c:1: no",
    ]


def test_an_internal_error_says_what_to_attach() -> None:
    assert "tilework doctor" in str(errors.InternalError("rewrite: impossible"))


def test_a_verify_error_prints_its_node() -> None:
    error = errors.VerifyError("verify: bad", node="x = add a, b")
    assert (error.node, "got: x = add a, b" in str(error)) == ("x = add a, b", True)
