"""Calls like the last one skip its checks, and every other call gets them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.frontends.onnx.models import model, node, value

from tilework import Tensor
from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.frontends.onnx.runner import OnnxRunner

ADDED = model([node("Add", ["x", "y"], ["z"])], [value("x", shape=["n"]), value("y")], ["z"])


def ready() -> OnnxRunner:
    runner = OnnxRunner(ADDED)
    for _ in range(3):
        runner({"x": np.ones(3, np.float32), "y": np.ones(3, np.float32)})
    assert runner._ready is not None
    return runner


def result(runner: OnnxRunner, x: Any, y: Any) -> Any:
    found = runner({"x": x, "y": y})["z"]
    assert isinstance(found, Tensor)
    return found.tolist()


def test_other_values_are_read() -> None:
    runner = ready()
    assert result(runner, np.full(3, 5, np.float32), np.arange(3, dtype=np.float32)) == [5, 6, 7]


def test_the_order_of_names_does_not_matter() -> None:
    x, y = np.ones(3, np.float32), np.arange(3, dtype=np.float32)
    found = ready()({"y": y, "x": x})["z"]
    assert isinstance(found, Tensor)
    assert found.tolist() == [1, 2, 3]


def test_another_shape_is_captured_anew() -> None:
    runner = ready()
    assert result(runner, np.ones(2, np.float32), np.ones(2, np.float32)) == [2, 2]
    assert result(runner, np.ones(3, np.float32), np.ones(3, np.float32)) == [2, 2, 2]


def test_tensors_and_arrays_may_alternate() -> None:
    runner, tensor = ready(), Tensor([1.0, 2.0, 3.0]).realize()
    assert result(runner, tensor, np.ones(3, np.float32)) == [2, 3, 4]
    assert result(runner, tensor, tensor) == [2, 4, 6]
    assert result(runner, np.ones(3, np.float32), tensor) == [2, 3, 4]


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ({"x": np.ones(3, np.float64), "y": np.ones(3, np.float32)}, DTypeError),
        ({"x": np.ones((3, 1), np.float32), "y": np.ones(3, np.float32)}, ShapeError),
        ({"x": np.ones(3, np.float32)}, UserError),
        ({"x": np.ones(3, np.float32), "w": np.ones(3, np.float32)}, UserError),
        ({"x": np.ones(3, ">f8"), "y": np.ones(3, np.float32)}, DTypeError),
    ],
    ids=["dtype", "rank", "missing", "unknown", "bytes"],
)
def test_a_call_that_does_not_fit_is_refused(inputs: dict[str, Any], error: type) -> None:
    runner = ready()
    with pytest.raises(error):
        runner(inputs)
    assert result(runner, np.ones(3, np.float32), np.ones(3, np.float32)) == [2, 2, 2]


def test_bytes_in_another_order_are_put_in_ours() -> None:
    assert result(ready(), np.arange(3).astype(">f4"), np.ones(3, np.float32)) == [1, 2, 3]


SHAPED = model(
    [node("Reshape", ["x", "shape"], ["z"])],
    [value("x", shape=["n"]), value("shape", "int64", [2])],
    ["z"],
)


def shaped() -> OnnxRunner:
    runner = OnnxRunner(SHAPED)
    for _ in range(3):
        runner({"x": np.arange(6, dtype=np.float32), "shape": np.array([2, 3])})
    assert runner._ready is not None
    return runner


def test_an_input_that_decides_shapes_may_stay_the_same() -> None:
    runner = shaped()
    ready_before = runner._ready
    x = np.arange(6, dtype=np.float32) + 1
    found = runner({"shape": np.array([2, 3]), "x": x})["z"]
    assert isinstance(found, Tensor)
    assert found.tolist() == x.reshape(2, 3).tolist()
    assert runner._ready is ready_before


@pytest.mark.parametrize("shape", [[3, 2], [6, 1], [-1, 2]])
def test_an_input_that_decides_shapes_is_compared_by_value(shape: list[int]) -> None:
    runner, x = shaped(), np.arange(6, dtype=np.float32)
    for each in (shape, [2, 3], shape):
        found = runner({"x": x, "shape": np.array(each)})["z"]
        assert isinstance(found, Tensor)
        assert found.tolist() == x.reshape(each).tolist()
        given = runner({"x": Tensor(x), "shape": Tensor(np.array(each))})["z"]
        assert isinstance(given, Tensor)
        assert given.tolist() == x.reshape(each).tolist()


def test_what_was_given_for_a_shape_may_be_written_to_afterwards() -> None:
    runner, shape = shaped(), np.array([2, 3])
    runner({"x": np.arange(6, dtype=np.float32), "shape": shape})
    shape[:] = [3, 2]
    found = runner({"x": np.arange(6, dtype=np.float32), "shape": shape})["z"]
    assert isinstance(found, Tensor)
    assert found.shape == (3, 2)
