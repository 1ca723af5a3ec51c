"""Operators whose values ONNX's own cases cannot state."""

import numpy as np
from tests.unit.frontends.onnx.models import Array, run_node


def test_dropout_keeps_everything_unless_the_model_trains() -> None:
    x = np.ones((64, 64), np.float32)
    constants: dict[str, Array] = {"ratio": np.array(0.25, np.float32), "t": np.array(False)}
    assert np.array_equal(run_node("Dropout", {"x": x}, constants=constants)[0], x)
    constants["t"] = np.array(True)
    values, kept = run_node("Dropout", {"x": x}, outputs=2, constants=constants)
    assert 0.65 < kept.mean() < 0.85
    assert np.allclose(values, kept / np.float32(0.75))
