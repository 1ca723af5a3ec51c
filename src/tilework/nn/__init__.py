"""Layers, optimizers and the state of models.

Parameters are plain tensors held by plain objects: whatever tensors an object (its attributes,
lists, dictionaries) reaches are its state.
"""

from __future__ import annotations

from tilework.nn import optim, state
from tilework.nn.layers.attention import MultiheadAttention, TransformerEncoderLayer
from tilework.nn.layers.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from tilework.nn.layers.dropout import Dropout
from tilework.nn.layers.embedding import Embedding
from tilework.nn.layers.linear import Linear
from tilework.nn.layers.normalization import (
    BatchNorm,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerNorm2d,
    RMSNorm,
)
from tilework.nn.layers.recurrent import LSTMCell
from tilework.nn.layers.sequence import GRU, LSTM, RNN, GRUCell

__all__ = [
    "GRU", "LSTM", "RNN", "BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Conv1d",
    "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Dropout",
    "Embedding", "GRUCell", "GroupNorm", "InstanceNorm", "LSTMCell", "LayerNorm", "LayerNorm2d",
    "Linear", "MultiheadAttention", "RMSNorm", "TransformerEncoderLayer", "optim", "state",
]  # fmt: skip
