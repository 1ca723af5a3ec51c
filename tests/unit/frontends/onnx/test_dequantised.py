"""Operators between dequantising and quantising ones compute in integers, and hold bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.frontends.onnx.models import Array, model, node, value

from tilework import Tensor, dtypes
from tilework.base import trace
from tilework.base.settings import override
from tilework.frontends.onnx.runner import OnnxRunner
from tilework.ir.node import Node, toposort
from tilework.ir.ops.tensor import REDUCE

SCALE, MIDDLE, LAST = 0.021, 0.9, 17.0


def quantised_layer(
    name: str, x: str, y: str, scales: tuple[float, float], constants: dict[str, Array], **more: Any
) -> list[Any]:
    """A convolution of a dequantised value with dequantised weights and bias, quantised again."""
    constants[f"{name}_s"] = np.array(scales[0], np.float32)
    constants[f"{name}_t"] = np.array(scales[1], np.float32)
    return [
        node("DequantizeLinear", [x, f"{name}_s", f"{name}_z"], [f"{name}_x"]),
        node("DequantizeLinear", [f"{name}_w", f"{name}_ws", f"{name}_wz"], [f"{name}_wf"], axis=0),
        node("DequantizeLinear", [f"{name}_b", f"{name}_bs"], [f"{name}_bf"], axis=0),
        node("Conv", [f"{name}_x", f"{name}_wf", f"{name}_bf"], [f"{name}_c"], **more),
        node("Relu", [f"{name}_c"], [f"{name}_r"]),
        node("QuantizeLinear", [f"{name}_r", f"{name}_t", f"{name}_y"], [y]),
    ]


def layer_constants(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], scale: float, dtype: Any
) -> dict[str, Array]:
    outputs = shape[0]
    scales = rng.uniform(0.004, 0.02, outputs).astype(np.float32)
    limits = np.iinfo(dtype)
    return {
        f"{name}_w": rng.integers(-128, 128, shape).astype(np.int8),
        f"{name}_ws": scales,
        f"{name}_wz": rng.integers(-3, 4, outputs).astype(np.int8),
        f"{name}_b": rng.integers(-2000, 2000, outputs).astype(np.int32),
        f"{name}_bs": np.float32(scale) * scales,
        f"{name}_z": np.array(limits.min + 100, dtype),
        f"{name}_y": np.array(limits.min + 7, dtype),
    }


def exact_layer(
    x: Array, name: str, constants: dict[str, Array], groups: int, pads: list[int], stride: int
) -> tuple[Array, Array]:
    """What float64 gives before rounding, and the quantised result of that."""
    keys = ("s", "t", "z", "w", "ws", "wz", "b", "bs", "y")
    f = {key: constants[f"{name}_{key}"].astype(np.float64) for key in keys}
    values = x.astype(np.float64) - f["z"]
    weights = f["w"] - f["wz"].reshape(-1, 1, 1, 1)
    top, left, bottom, right = pads
    values = np.pad(values, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(values, weights.shape[2:], (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    parts = [
        np.einsum("nchwij,ocij->nohw", part, own)
        for part, own in zip(
            np.split(windows, groups, 1), np.split(weights, groups, 0), strict=True
        )
    ]
    along = (1, -1, 1, 1)
    total = np.concatenate(parts, 1) * f["s"] * f["ws"].reshape(along)
    total = np.maximum(total + (f["b"] * f["bs"]).reshape(along), 0) / f["t"]
    limits = np.iinfo(x.dtype)
    return total, np.clip(np.round(total) + f["y"], limits.min, limits.max).astype(x.dtype)


def result(found: Any) -> Array:
    """An output as an array."""
    assert isinstance(found, Tensor)
    array: Array = found.numpy()
    return array


class Sums:
    """The dtypes of the sums in what is scheduled."""

    def __init__(self) -> None:
        self.found: set[Any] = set()

    def __call__(self, event: trace.Event) -> None:
        if isinstance(event, trace.PassEnded) and event.name == "schedule.integer-sums":
            assert isinstance(event.after, Node)
            self.found |= {n.type.dtype for n in toposort(event.after) if n.op is REDUCE}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("groups", "pads", "stride"),
    [(1, [1, 1, 1, 1], 1), (12, [0, 2, 1, 1], 1), (4, [1, 0, 0, 2], 2)],
)
def test_a_chain_of_quantised_convolutions_is_computed_in_integers(
    tmp_path: Any, dtype: Any, groups: int, pads: list[int], stride: int
) -> None:
    rng = np.random.default_rng(groups)
    constants = layer_constants(rng, "one", (12, 12 // groups, 3, 3), SCALE, dtype)
    constants |= layer_constants(rng, "two", (8, 12, 1, 1), MIDDLE, dtype)
    nodes = quantised_layer(
        "one", "x", "m", (SCALE, MIDDLE), constants, group=groups, pads=pads, strides=[stride] * 2
    )
    nodes += quantised_layer("two", "m", "y", (MIDDLE, LAST), constants)
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max + 1, (1, 12, 7, 8)).astype(dtype)
    path = tmp_path / "model.onnx"
    path.write_bytes(
        model(nodes, [value("x", np.dtype(dtype).name, x.shape)], ["m", "y"], constants)
    )
    sums = Sums()
    with trace.subscribe(sums), override(cache_dir=tmp_path / "cache"):
        found = OnnxRunner(path)({"x": x})
    assert sums.found == {dtypes.int32}
    total, expected = exact_layer(x, "one", constants, groups, pads, stride)
    is_sure = np.abs(total % 1 - 0.5) > 1e-4
    assert np.array_equal(result(found["m"])[is_sure], expected[is_sure])
    total, expected = exact_layer(result(found["m"]), "two", constants, 1, [0, 0, 0, 0], 1)
    is_sure = np.abs(total % 1 - 0.5) > 1e-4
    assert np.array_equal(result(found["y"])[is_sure], expected[is_sure])


def test_weights_of_a_float_product_stay_bytes(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    constants: dict[str, Array] = {
        "w": rng.integers(-128, 128, (64, 48)).astype(np.int8),
        "s": rng.random(48).astype(np.float32),
    }
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["f"], axis=1),
        node("MatMul", ["x", "f"], ["y"]),
    ]
    path = tmp_path / "model.onnx"
    path.write_bytes(model(nodes, [value("x", "float32", [3, 64])], ["y"], constants))
    runner = OnnxRunner(path)
    x = rng.standard_normal((3, 64)).astype(np.float32)
    found = result(runner({"x": x})["y"])
    exact = x.astype(np.float64) @ (constants["w"].astype(np.float64) * constants["s"])
    assert np.allclose(found, exact, rtol=1e-5, atol=1e-4)
    held = runner._program.folded()
    assert "f" not in held
