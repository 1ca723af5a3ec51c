"""Layers with parameters that are met less often."""

from __future__ import annotations

import copy
from typing import Any

from tilework.base.errors import UserError
from tilework.nn.layers.attention import MultiheadAttention, TransformerEncoderLayer
from tilework.nn.layers.normalization import LayerNorm
from tilework.tensor.tensor import Tensor


class PReLU:
    """Negative elements times a slope that is learned, one for all or one for each channel."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.weight = Tensor.full((num_parameters,), float(init))

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return x.prelu(self.weight)


class Bilinear:
    """x1^T @ weight @ x2 + bias for each output.

    Shape: (..., in1_features) and (..., in2_features) -> (..., out_features)
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True
    ) -> None:
        bound = max(in1_features, 1) ** -0.5
        self.weight = Tensor.uniform(
            out_features, in1_features, in2_features, low=-bound, high=bound
        )
        self.bias = Tensor.uniform(out_features, low=-bound, high=bound) if bias else None

    def __call__(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Apply the layer."""
        return x1.bilinear(x2, self.weight, self.bias)


class EmbeddingBag:
    """Rows of a table, put together bag by bag; see `Tensor.embedding_bag`."""

    def __init__(self, num_embeddings: int, embedding_dim: int, mode: str = "mean") -> None:
        self.weight = Tensor.randn(num_embeddings, embedding_dim)
        self.mode = mode

    def __call__(self, x: Tensor, offsets: Tensor | None = None) -> Tensor:
        """Apply the layer."""
        return x.embedding_bag(self.weight, offsets, self.mode)


class RNNCell:
    """One step of a plain recurrent network.

    Args:
        input_size: size of the input.
        hidden_size: size of the state.
        bias: whether something is added.
        nonlinearity: "tanh" or "relu".

    Shape: x (n, input_size), state (n, hidden_size) -> (n, hidden_size)
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise UserError(
                "RNNCell: unknown nonlinearity", got=nonlinearity, expected="tanh or relu"
            )
        bound = max(hidden_size, 1) ** -0.5
        self.hidden_size = hidden_size
        self.nonlinearity = nonlinearity
        self.weight_ih = Tensor.uniform(hidden_size, input_size, low=-bound, high=bound)
        self.weight_hh = Tensor.uniform(hidden_size, hidden_size, low=-bound, high=bound)
        self.bias_ih = Tensor.uniform(hidden_size, low=-bound, high=bound) if bias else None
        self.bias_hh = Tensor.uniform(hidden_size, low=-bound, high=bound) if bias else None

    def __call__(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        """Apply the layer."""
        total = x.linear(self.weight_ih.T, self.bias_ih)
        if state is not None:
            total = total + state.linear(self.weight_hh.T, self.bias_hh)
        elif self.bias_hh is not None:
            total = total + self.bias_hh
        return total.tanh() if self.nonlinearity == "tanh" else total.relu()


class TransformerEncoder:
    """Copies of one encoder layer, one after the other, and a norm if one is given."""

    def __init__(
        self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Any = None
    ) -> None:
        self.layers = [copy.deepcopy(encoder_layer) for _ in range(num_layers)]
        self.norm = norm

    def __call__(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Apply all layers; masks as of `MultiheadAttention`."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        found: Tensor = src if self.norm is None else self.norm(src)
        return found


class TransformerDecoderLayer(TransformerEncoderLayer):
    """Attention to itself, attention to a memory, and a network of two layers.

    Arguments as of `TransformerEncoderLayer`.

    Example:
        >>> layer = TransformerDecoderLayer(8, 2, 16, batch_first=True)
        >>> layer(Tensor.ones(3, 5, 8), Tensor.ones(3, 7, 8)).shape
        (3, 5, 8)
    """

    def __init__(self, d_model: int, nhead: int, *rest: Any, **options: Any) -> None:
        super().__init__(d_model, nhead, *rest, **options)
        attention = self.self_attn
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, attention.dropout, batch_first=attention.batch_first
        )
        self.norm3 = LayerNorm(d_model, self.norm1.eps)

    def __call__(  # type: ignore[override]  # a decoder takes a memory too
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
    ) -> Tensor:
        """Apply the layer; masks as of `MultiheadAttention`."""

        def attend(x: Tensor) -> Tensor:
            found, _ = self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, tgt_is_causal)
            return self.drop(found)

        def look(x: Tensor) -> Tensor:
            found, _ = self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask
            )
            return self.drop(found)

        def feed(x: Tensor) -> Tensor:
            return self.drop(self.linear2(self.drop(self.activation(self.linear1(x)))))

        if self.norm_first:
            tgt = tgt + attend(self.norm1(tgt))
            tgt = tgt + look(self.norm2(tgt))
            return tgt + feed(self.norm3(tgt))
        tgt = self.norm1(tgt + attend(tgt))
        tgt = self.norm2(tgt + look(tgt))
        return self.norm3(tgt + feed(tgt))
