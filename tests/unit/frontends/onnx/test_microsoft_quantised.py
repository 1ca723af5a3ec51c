"""Quantised operators of ONNX Runtime's domain, judged by NumPy's 64-bit integers and floats."""

from typing import Any

import numpy as np
import pytest
from tests.unit.frontends.onnx.models import Array, agrees, model, node, value

from tilework.onnx import OnnxRunner

DOMAIN = "com.microsoft"


def run(op: str, x: Array, constants: dict[str, Array], order: str, **attributes: Any) -> Array:
    """Run one node; `order` names its operands: `x` is given, the others are constants."""
    names = ["" if name == "-" else name for name in order.split()]
    nodes = [node(op, names, ["y"], domain=DOMAIN, **attributes)]
    text = model(nodes, [value("x", str(x.dtype), x.shape)], ["y"], constants, domains=[DOMAIN])
    found: Array = OnnxRunner(text)({"x": x})["y"].numpy()  # type: ignore[union-attr]
    return found


def byte(value: int, dtype: type[np.integer] = np.uint8) -> Array:
    return np.array(value, dtype)


def real(value: float) -> Array:
    return np.array(value, np.float32)


def quantised(x: Array, scale: float, point: int) -> Array:
    rounded = np.round(x / np.float32(scale)) + point
    return np.clip(rounded, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("is_transposed", [False, True], ids=["plain", "transposed"])
def test_qgemm_is_exact_before_it_is_scaled(is_transposed: bool) -> None:
    generator = np.random.default_rng(0)
    a = generator.integers(0, 256, (9, 33)).astype(np.uint8)
    b = generator.integers(-128, 128, (33, 20)).astype(np.int8)
    points = generator.integers(-3, 4, 20).astype(np.int8)
    bias = generator.integers(-999, 999, 20).astype(np.int32)
    constants = {
        "s": real(0.5), "p": byte(113), "b": b.T.copy() if is_transposed else b,
        "t": np.full(20, 0.25, np.float32), "q": points, "c": bias,
    }  # fmt: skip
    total = (a.astype(np.int64) - 113) @ (b.astype(np.int64) - points) + bias
    order, transposed = "x s p b t q c", int(is_transposed)
    found = run("QGemm", a, constants, order, transB=transposed, alpha=2.0)
    # All scales are powers of two, so that floats of 24 bits hold the products.
    np.testing.assert_array_equal(found, (total * 0.25).astype(np.float32))
    constants |= {"u": real(64.0), "r": byte(100)}
    found = run("QGemm", a, constants, f"{order} u r", transB=transposed, alpha=2.0)
    np.testing.assert_array_equal(found, quantised(total * 0.25, 64.0, 100))


@pytest.mark.parametrize("is_last", [False, True])
def test_the_global_average_is_rounded_once(is_last: bool) -> None:
    x = np.random.default_rng(1).integers(0, 256, (2, 5, 4, 8)).astype(np.uint8)
    constants = {"s": real(0.5), "p": byte(7), "t": real(0.25), "q": byte(3)}
    total = (x.astype(np.int64) - 7).sum(axis=(2, 3), keepdims=True)
    wanted = np.clip(np.round(total * 0.5 / (0.25 * 32)) + 3, 0, 255).astype(np.uint8)
    given = np.moveaxis(x, 1, -1).copy() if is_last else x
    wanted = np.moveaxis(wanted, 1, -1) if is_last else wanted
    found = run(
        "QLinearGlobalAveragePool", given, constants, "x s p t q", channels_last=int(is_last)
    )
    np.testing.assert_array_equal(found, wanted)


def test_all_bytes_go_through_quantised_activations() -> None:
    x = np.arange(256, dtype=np.uint8)
    constants = {"s": real(0.0625), "p": byte(128), "t": real(0.125), "q": byte(60)}
    values = (x.astype(np.float32) - 128) * np.float32(0.0625)
    found = run("QLinearLeakyRelu", x, constants, "x s p t q", alpha=0.25)
    wanted = np.where(values < 0, values * np.float32(0.25), values)
    np.testing.assert_array_equal(found, quantised(wanted, 0.125, 60))
    constants |= {"t": real(1 / 256), "q": byte(0)}
    found = run("QLinearSigmoid", x, constants, "x s p t q")
    wanted = quantised(1 / (1 + np.exp(-values.astype(np.float64))), 1 / 256, 0)
    # Bit for bit but where a sigmoid within its bound lies on the other side of a half.
    assert np.abs(found.astype(int) - wanted).max() <= 1
    assert (found != wanted).mean() < 0.02


def test_joined_parts_get_one_scale() -> None:
    x = np.arange(12, dtype=np.uint8).reshape(3, 4)
    other = np.full((2, 4), 200, np.uint8)
    constants = {
        "t": real(0.5), "q": byte(10), "s": real(0.25), "p": byte(2), "o": other,
        "u": real(1.0), "v": byte(190),
    }  # fmt: skip
    found = run("QLinearConcat", x, constants, "t q x s p o u v", axis=0)
    first = quantised((x.astype(np.float32) - 2) * 0.25, 0.5, 10)
    np.testing.assert_array_equal(found, np.concatenate([first, np.full((2, 4), 30, np.uint8)]))


# --- beside ONNX Runtime --------------------------------------------------------------------------


def some(kind: type[np.integer], *shape: int) -> Array:
    limits = np.iinfo(kind)
    return np.random.default_rng(3).integers(limits.min, limits.max + 1, shape).astype(kind)


POOLS: list[dict[str, Any]] = [
    {"kernel_shape": [3, 3]},
    {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 1, 0, 1]},
    {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [3, 3], "ceil_mode": 1, "count_include_pad": 1},
    {"kernel_shape": [2, 3], "strides": [2, 3], "pads": [1, 1, 0, 1], "ceil_mode": 1,
     "count_include_pad": 1},
    {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "channels_last": 1},
]  # fmt: skip


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("form", POOLS, ids=str)
def test_averages_of_windows(form: dict[str, Any], kind: type[np.integer]) -> None:
    operands = [some(kind, 2, 3, 7, 8), real(0.02), byte(5, kind), real(0.015), byte(3, kind)]
    agrees("QLinearAveragePool", operands, steps=1, **form)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize(("opset", "axis"), [(13, -1), (13, 1), (11, 1), (11, 2)])
def test_a_softmax_follows_the_version_of_its_axis(
    opset: int, axis: int, kind: type[np.integer]
) -> None:
    operands = [
        some(kind, 3, 4, 5), real(0.05), byte(10, kind), real(1 / 256),
        byte(np.iinfo(kind).min, kind),
    ]  # fmt: skip
    agrees("QLinearSoftmax", operands, steps=1, standard=opset, opset=opset, axis=axis)
    agrees("QLinearSoftmax", operands, steps=1, standard=opset, opset=opset)


@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("sizes", [(2, 3, 4), (4,), (3, 1), ()])
def test_sums_and_products_of_bytes_broadcast(operator: str, sizes: tuple[int, ...]) -> None:
    a, b = some(np.uint8, 2, 3, 4), np.asarray(some(np.uint8, *sizes))
    operands = [a, real(0.02), byte(5), b, real(0.03), byte(7), real(0.04), byte(20)]
    agrees(operator, operands, steps=1)


def test_a_choice_between_bytes_is_scaled() -> None:
    chosen = np.array([[True, False, True], [False, True, False]])
    operands = [
        chosen, some(np.uint8, 2, 3), real(0.02), byte(3), some(np.uint8, 3), real(0.01), byte(2),
        real(0.02), byte(4),
    ]  # fmt: skip
    agrees("QLinearWhere", operands, constants=[2, 3, 5, 6, 7, 8], steps=1)


def test_channels_may_come_last() -> None:
    # ONNX Runtime adds pairs of larger products in 16 bits where a processor has no VNNI.
    x, points = some(np.uint8, 1, 6, 6, 4) // 2, [byte(3), byte(0, np.int8), byte(4)]
    weight = some(np.int8, 5, 4, 3, 3)
    operands = [
        x, real(0.02), points[0], weight, real(0.01), points[1], real(0.5), points[2],
    ]  # fmt: skip
    form: dict[str, Any] = {"channels_last": 1, "pads": [1, 1, 1, 1]}
    agrees("QLinearConv", operands, constants=[3], steps=1, **form)
    window: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    agrees("NhwcMaxPool", [x], **window)


def test_words_of_sixteen_bits_are_scaled_too() -> None:
    row = some(np.uint16, 3, 8)
    agrees("DequantizeLinear", [row, real(0.02), np.array(300, np.uint16)])
    x = np.random.default_rng(4).normal(size=(3, 8)).astype(np.float32) * 100
    agrees("QuantizeLinear", [x, real(0.02), np.array(-300, np.int16)], steps=0)
