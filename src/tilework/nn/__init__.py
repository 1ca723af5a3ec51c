"""Layers, optimizers and the state of models.

Parameters are plain tensors held by plain objects: whatever tensors an object (its attributes,
lists, dictionaries) reaches are its state.
"""

from __future__ import annotations

from tilework.nn import distributions, func, functional, init, media, optim, state, utils
from tilework.nn.layers.adaptive import AdaptiveLogSoftmaxWithLoss
from tilework.nn.layers.attention import MultiheadAttention
from tilework.nn.layers.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from tilework.nn.layers.dropout import Dropout
from tilework.nn.layers.embedding import Embedding, EmbeddingBag
from tilework.nn.layers.functions import (
    LAYERS,
    FunctionLayer,
    Identity,
    ModuleDict,
    ModuleList,
    Sequential,
)
from tilework.nn.layers.further import Bilinear, PReLU, RNNCell
from tilework.nn.layers.lazy import (
    LazyBatchNorm1d,
    LazyBatchNorm2d,
    LazyBatchNorm3d,
    LazyConv1d,
    LazyConv2d,
    LazyConv3d,
    LazyConvTranspose1d,
    LazyConvTranspose2d,
    LazyConvTranspose3d,
    LazyInstanceNorm1d,
    LazyInstanceNorm2d,
    LazyInstanceNorm3d,
    LazyLinear,
)
from tilework.nn.layers.linear import Linear
from tilework.nn.layers.normalization import (
    BatchNorm,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    LayerNorm2d,
    RMSNorm,
)
from tilework.nn.layers.recurrent import LSTMCell
from tilework.nn.layers.sequence import GRU, LSTM, RNN, GRUCell
from tilework.nn.layers.transformer import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from tilework.tensor.elsewhere import OF_LAYERS, OF_NN, explain_missing, missing
from tilework.tensor.wrong_calls import tell

__all__ = [
    "GRU", "LSTM", "RNN", "AdaptiveLogSoftmaxWithLoss", "BatchNorm", "BatchNorm1d", "BatchNorm2d",
    "BatchNorm3d", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d", "Dropout", "Embedding", "EmbeddingBag", "FunctionLayer", "GRUCell",
    "GroupNorm", "Identity", "InstanceNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "LSTMCell", "LayerNorm", "LayerNorm2d", "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d",
    "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d",
    "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d",
    "LazyLinear", "Linear", "ModuleDict", "ModuleList", "MultiheadAttention", "PReLU", "RMSNorm",
    "RNNCell", "Sequential", "Transformer", "TransformerDecoder", "TransformerDecoderLayer",
    "TransformerEncoder", "TransformerEncoderLayer", "distributions", "func", "functional", "init",
    "media", "optim", "state", "utils",
]  # fmt: skip
__all__ += sorted(LAYERS)

tell(__name__, __all__)
explain_missing(
    (kind for kind in (globals().get(name) for name in __all__) if isinstance(kind, type)),
    OF_LAYERS,
)


def __getattr__(name: str) -> type[FunctionLayer]:
    """The layers without parameters, by name."""
    if name in LAYERS:
        return LAYERS[name]
    raise missing(f"module {__name__!r}", name, OF_NN)


def __dir__() -> list[str]:
    return sorted([*globals(), *LAYERS])
