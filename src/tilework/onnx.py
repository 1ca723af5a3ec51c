"""Run ONNX models.

Example:
    >>> from tilework.onnx import OnnxRunner
    >>> runner = OnnxRunner("model.onnx")  # doctest: +SKIP
    >>> [str(info) for info in runner.inputs]  # doctest: +SKIP
    ['x: float32[batch, 3, height, width]']
    >>> runner({"x": picture})["y"].numpy()  # doctest: +SKIP
"""

from tilework.frontends.onnx.graph import ValueInfo
from tilework.frontends.onnx.runner import OnnxRunner
from tilework.tensor.wrong_calls import tell

__all__ = ["OnnxRunner", "ValueInfo"]


tell(__name__, ("OnnxRunner",))
