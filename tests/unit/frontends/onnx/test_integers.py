"""Quantised operators are exact: judged by NumPy's 64-bit integers, never by another runtime."""

import numpy as np
import pytest
from tests.unit.frontends.onnx.models import Array, run_node


@pytest.mark.parametrize("right", [np.int8, np.uint8])
@pytest.mark.parametrize("left", [np.int8, np.uint8])
def test_matmul_integer_is_exact_at_the_ends_of_the_ranges(
    left: type[np.integer], right: type[np.integer]
) -> None:
    generator = np.random.default_rng(0)
    a = generator.choice([np.iinfo(left).min, np.iinfo(left).max], (4, 512)).astype(left)
    b = generator.integers(np.iinfo(right).min, np.iinfo(right).max + 1, (512, 16)).astype(right)
    points = {"ap": np.array(3, left), "bp": np.array(-5 if right is np.int8 else 5, right)}
    (found,) = run_node("MatMulInteger", {"a": a, "b": b}, constants=points)
    wanted = (a.astype(np.int64) - 3) @ (b.astype(np.int64) - int(points["bp"]))
    assert found.dtype == np.int32
    assert np.array_equal(found, wanted)


def test_matmul_integer_takes_a_zero_point_per_column_and_per_row() -> None:
    generator = np.random.default_rng(1)
    a = generator.integers(0, 256, (3, 7)).astype(np.uint8)
    b = generator.integers(-128, 128, (7, 5)).astype(np.int8)
    points = {"ap": np.array([1, 2, 3], np.uint8), "bp": np.array([1, -1, 2, -2, 0], np.int8)}
    (found,) = run_node("MatMulInteger", {"a": a, "b": b}, constants=points)
    left = a.astype(np.int64) - points["ap"].astype(np.int64)[:, None]
    assert np.array_equal(found, left @ (b.astype(np.int64) - points["bp"].astype(np.int64)))


def test_conv_integer_pads_with_the_zero_point() -> None:
    x = np.full((1, 1, 3, 3), 10, np.uint8)
    w = np.ones((1, 1, 3, 3), np.uint8)
    (found,) = run_node(
        "ConvInteger", {"x": x, "w": w}, constants={"p": np.array(10, np.uint8)}, pads=[1, 1, 1, 1]
    )
    assert not found.any()


def test_conv_integer_is_exact() -> None:
    generator = np.random.default_rng(2)
    x = generator.integers(0, 256, (1, 8, 5, 6)).astype(np.uint8)
    w = generator.integers(-128, 128, (4, 8, 3, 3)).astype(np.int8)
    (found,) = run_node("ConvInteger", {"x": x, "w": w})
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64), (3, 3), (2, 3))
    assert np.array_equal(found, np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64)))


def test_quantise_rounds_ties_to_even_before_adding_the_zero_point() -> None:
    x = np.array([-0.5, 0.5, 1.5, 2.5, -1.5, 300.0, -300.0], np.float32)
    constants: dict[str, Array] = {"s": np.array(1, np.float32), "z": np.array(128, np.uint8)}
    (found,) = run_node("QuantizeLinear", {"x": x}, constants=constants)
    assert found.tolist() == [128, 128, 130, 130, 126, 255, 0]


def test_quantise_keeps_one_scale_per_channel() -> None:
    x = np.array([[1.0, 2.0], [1.0, 2.0]], np.float32)
    constants: dict[str, Array] = {
        "s": np.array([1, 0.5], np.float32),
        "z": np.array([0, 10], np.int8),
    }
    (found,) = run_node("QuantizeLinear", {"x": x}, constants=constants, axis=0)
    assert found.tolist() == [[1, 2], [12, 14]]


def test_dequantise_inverts_it_in_float32() -> None:
    x = np.array([0, 128, 255], np.uint8)
    constants: dict[str, Array] = {"s": np.array(0.1, np.float32), "z": np.array(128, np.uint8)}
    (found,) = run_node("DequantizeLinear", {"x": x}, constants=constants)
    wanted = (x.astype(np.int32) - 128).astype(np.float32) * np.float32(0.1)
    assert np.array_equal(found, wanted)


def test_dynamic_quantise_covers_zero_and_the_range() -> None:
    x = np.array([-1.02, 0.0, 1.53], np.float32)
    values, scale, point = run_node("DynamicQuantizeLinear", {"x": x}, outputs=3)
    assert (values.tolist(), int(point)) == ([0, 102, 255], 102)
    assert float(scale) == pytest.approx(0.01, rel=1e-6)


def test_dynamic_quantise_of_zeros_gives_zeros() -> None:
    values, scale, point = run_node("DynamicQuantizeLinear", {"x": np.zeros(4, "f4")}, outputs=3)
    assert (values.tolist(), float(scale), int(point)) == ([0, 0, 0, 0], 1.0, 0)


def test_integer_division_rounds_towards_zero() -> None:
    a, b = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    (found,) = run_node("Div", {"a": a, "b": b})
    assert found.tolist() == [3, -3, -3, 3]


def test_mod_takes_the_sign_that_fmod_says() -> None:
    a, b = np.array([7, -7, 7, -7], np.int32), np.array([3, 3, -3, -3], np.int32)
    assert run_node("Mod", {"a": a, "b": b})[0].tolist() == [1, 2, -2, -1]
    assert run_node("Mod", {"a": a, "b": b}, fmod=1)[0].tolist() == [1, -1, 1, -1]


def test_a_shift_by_the_width_leaves_nothing() -> None:
    a, b = np.array([1, 255], np.uint8), np.array([8, 9], np.uint8)
    assert run_node("BitShift", {"a": a, "b": b}, direction="LEFT")[0].tolist() == [0, 0]
    assert run_node("BitShift", {"a": a, "b": b}, direction="RIGHT")[0].tolist() == [0, 0]
