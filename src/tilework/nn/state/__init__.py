"""The state of models: collecting tensors, and files of them."""

from __future__ import annotations

from tilework.nn.state.archive import TensorIO, tar_extract, zip_extract
from tilework.nn.state.gguf import gguf_load
from tilework.nn.state.safetensors import safe_dtypes, safe_load, safe_load_metadata, safe_save
from tilework.nn.state.torch_pickle import torch_load
from tilework.nn.state.tree import get_parameters, get_state_dict, load_state_dict
from tilework.tensor.wrong_calls import tell

__all__ = [
    "TensorIO", "get_parameters", "get_state_dict", "gguf_load", "load_state_dict", "safe_dtypes",
    "safe_load", "safe_load_metadata", "safe_save", "tar_extract", "torch_load", "zip_extract",
]  # fmt: skip

tell(__name__, __all__)
