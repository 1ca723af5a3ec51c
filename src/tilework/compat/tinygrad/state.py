"""What `from tinygrad.nn.state import ...` gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tilework import Tensor, errors
from tilework.nn import state
from tilework.nn.state import (
    TensorIO,
    get_parameters,
    get_state_dict,
    gguf_load,
    safe_dtypes,
    safe_load,
    safe_save,
    tar_extract,
    torch_load,
    zip_extract,
)

inverse_safe_dtypes = {dtype: name for name, dtype in safe_dtypes.items()}


def safe_load_metadata(t: Tensor | str | Path) -> tuple[Tensor, int, dict[str, Any]]:
    """The bytes of a safetensors file, where its data begins, and its header."""
    data = t if isinstance(t, Tensor) else Tensor(Path(t))
    start = int.from_bytes(data[:8].data(), "little") + 8
    return data, start, json.loads(data[8:start].data().tobytes())


def load_state_dict(
    model: Any,
    state_dict: dict[str, Tensor],
    strict: bool = True,
    verbose: bool = True,
    consume: bool = False,
    realize: bool = True,
) -> list[Tensor]:
    """Write tensors into a model's tensors of the same names; see `tilework.nn.state`.

    Raises:
        KeyError: a name is missing, and `strict` is on.
        ValueError: a value has another shape.
    """
    try:
        return state.load_state_dict(model, state_dict, strict, verbose, consume, realize)
    except errors.ModelFileError as error:
        raise KeyError(str(error)) from error


__all__ = [
    "TensorIO",
    "get_parameters", "get_state_dict", "gguf_load", "inverse_safe_dtypes", "load_state_dict",
    "safe_dtypes", "safe_load", "safe_load_metadata", "safe_save", "tar_extract", "torch_load",
    "zip_extract",
]  # fmt: skip
