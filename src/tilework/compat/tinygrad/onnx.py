"""What `from tinygrad.nn.onnx import ...` gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilework import Tensor
from tilework.onnx import OnnxRunner as _Runner
from tilework.onnx import ValueInfo


class OnnxRunner(_Runner):
    """A model as programs know it.

    Args:
        model_path: a path, or a tensor of the bytes of a model file.
    """

    def __init__(self, model_path: Tensor | str | Path) -> None:
        source: Any = model_path.data().tobytes() if isinstance(model_path, Tensor) else model_path
        super().__init__(source)

    def __call__(
        self, inputs: Any = None, debug: int = 0, **named: Any
    ) -> dict[str, Tensor | list[Any] | None]:
        """Run the model on tensors, arrays or numbers by input name."""
        return super().__call__(inputs, **named)

    @property
    def graph_inputs(self) -> dict[str, ValueInfo]:
        """The inputs by name."""
        return self.input_types

    @property
    def graph_outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return tuple(info.name for info in self.outputs)


__all__ = ["OnnxRunner"]
