"""Transformers (Vaswani and others, 2017): encoders, decoders, and both together.

Weights are named, and arguments ordered, as in PyTorch.  What PyTorch's arguments
`enable_nested_tensor` and `mask_check` are about, a faster form of padded batches, is not here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tilework.base.errors import UserError
from tilework.nn.init import xavier_uniform_
from tilework.nn.layers.attention import MultiheadAttention
from tilework.nn.layers.dropout import Dropout
from tilework.nn.layers.linear import Linear
from tilework.nn.layers.normalization import LayerNorm
from tilework.nn.state.tree import get_parameters
from tilework.tensor.tensor import Tensor

Activation = str | Callable[[Tensor], Tensor]


class TransformerEncoderLayer:
    """Attention and a network of two layers, each with a residual and a layer norm.

    Args:
        d_model: features.
        nhead: heads of the attention.
        dim_feedforward: features between the two layers.
        dropout: while training.
        activation: a function, or "relu" or "gelu".
        layer_norm_eps: added to variances.
        batch_first: the batch is the first axis, not the second.
        norm_first: normalise before, not after the residual.
        bias: whether products and norms have something added.

    Shape: (length, n, d_model), (n, length, d_model) if batch_first, or (length, d_model) -> the
        same

    Raises:
        ShapeError: the features don't divide into the heads, or the input has other ones.

    Example:
        >>> TransformerEncoderLayer(8, 2, 16, batch_first=True)(Tensor.ones(3, 5, 8)).shape
        (3, 5, 8)
    """

    def __init__(  # noqa: PLR0913  # PyTorch's arguments
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.drop = Dropout(dropout)
        self.norm_first = norm_first
        self.activation = _activation(activation)
        self._add_parts(d_model, nhead, dropout, layer_norm_eps, batch_first, bias)

    def _add_parts(
        self, d_model: int, nhead: int, dropout: float, eps: float, batch_first: bool, bias: bool
    ) -> None:
        """What a layer of another kind has besides."""

    def __call__(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Apply the layer; masks as of `MultiheadAttention`."""

        def attend(x: Tensor) -> Tensor:
            return self._attend(x, src_mask, src_key_padding_mask, is_causal)

        if self.norm_first:
            src = src + attend(self.norm1(src))
            return src + self._feed(self.norm2(src))
        src = self.norm1(src + attend(src))
        return self.norm2(src + self._feed(src))

    def _attend(
        self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool
    ) -> Tensor:
        """Attention to the sequence itself."""
        found, _ = self.self_attn(
            x, x, x, padding, need_weights=False, attn_mask=mask, is_causal=_plain(mask, is_causal)
        )
        return self.drop(found)

    def _feed(self, x: Tensor) -> Tensor:
        """The network of two layers."""
        return self.drop(self.linear2(self.drop(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(TransformerEncoderLayer):
    """Attention to itself, attention to a memory, and a network of two layers.

    Arguments as of `TransformerEncoderLayer`.

    Shape: (length, n, d_model), memory (other length, n, d_model) -> as the first; the batch first,
        or none, likewise

    Example:
        >>> layer = TransformerDecoderLayer(8, 2, 16, batch_first=True)
        >>> layer(Tensor.ones(3, 5, 8), Tensor.ones(3, 7, 8)).shape
        (3, 5, 8)
    """

    def _add_parts(
        self, d_model: int, nhead: int, dropout: float, eps: float, batch_first: bool, bias: bool
    ) -> None:
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first
        )
        self.norm3 = LayerNorm(d_model, eps, bias=bias)

    def __call__(  # type: ignore[override]  # a decoder takes a memory too
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Apply the layer; masks as of `MultiheadAttention`."""

        def attend(x: Tensor) -> Tensor:
            return self._attend(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal)

        def look(x: Tensor) -> Tensor:
            found, _ = self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, need_weights=False,
                attn_mask=memory_mask, is_causal=_plain(memory_mask, memory_is_causal),
            )  # fmt: skip
            return self.drop(found)

        if self.norm_first:
            tgt = tgt + attend(self.norm1(tgt))
            tgt = tgt + look(self.norm2(tgt))
            return tgt + self._feed(self.norm3(tgt))
        tgt = self.norm1(tgt + attend(tgt))
        tgt = self.norm2(tgt + look(tgt))
        return self.norm3(tgt + self._feed(tgt))


class TransformerEncoder:
    """Copies of one encoder layer, one after the other, and a norm if one is given.

    Args:
        encoder_layer: what is copied.
        num_layers: how many copies.
        norm: applied last.
        enable_nested_tensor: accepted; the numbers are the same.
        mask_check: accepted.

    Shape: that of the layer

    Example:
        >>> encoder = TransformerEncoder(TransformerEncoderLayer(8, 2, 16), num_layers=2)
        >>> encoder(Tensor.ones(5, 3, 8)).shape
        (5, 3, 8)
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Callable[[Tensor], Tensor] | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        self.layers = [copy.deepcopy(encoder_layer) for _ in range(num_layers)]
        self.norm = norm

    def __call__(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Apply all layers; masks as of `MultiheadAttention`."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder:
    """Copies of one decoder layer, one after the other, and a norm if one is given.

    Args:
        decoder_layer: what is copied.
        num_layers: how many copies.
        norm: applied last.

    Shape: that of the layer

    Example:
        >>> decoder = TransformerDecoder(TransformerDecoderLayer(8, 2, 16), num_layers=2)
        >>> decoder(Tensor.ones(5, 3, 8), Tensor.ones(7, 3, 8)).shape
        (5, 3, 8)
    """

    def __init__(
        self,
        decoder_layer: TransformerDecoderLayer,
        num_layers: int,
        norm: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.layers = [copy.deepcopy(decoder_layer) for _ in range(num_layers)]
        self.norm = norm

    def __call__(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Apply all layers; masks as of `MultiheadAttention`."""
        for layer in self.layers:
            tgt = layer(
                tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                bool(tgt_is_causal), memory_is_causal,
            )  # fmt: skip
        return tgt if self.norm is None else self.norm(tgt)


class Transformer:
    """An encoder, and a decoder that looks at what it gives.

    Args:
        d_model: features.
        nhead: heads of all attentions.
        num_encoder_layers: layers of the encoder.
        num_decoder_layers: layers of the decoder.
        dim_feedforward: features between the two layers of each network.
        dropout: while training.
        activation: a function, or "relu" or "gelu".
        custom_encoder: instead of the encoder.
        custom_decoder: instead of the decoder.
        layer_norm_eps: added to variances.
        batch_first: the batch is the first axis, not the second.
        norm_first: normalise before, not after the residual.
        bias: whether products and norms have something added.

    Shape: source (s, n, d_model), target (t, n, d_model) -> (t, n, d_model); the batch first, or
        none, likewise

    Example:
        >>> model = Transformer(8, 2, 1, 1, 16)
        >>> model(Tensor.ones(7, 3, 8), Tensor.ones(5, 3, 8)).shape
        (5, 3, 8)
    """

    def __init__(  # noqa: PLR0913  # PyTorch's arguments
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Callable[..., Any] | None = None,
        custom_decoder: Callable[..., Any] | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        shared = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias,
        )  # fmt: skip
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first
        self.encoder: Any = custom_encoder
        if custom_encoder is None:
            layer = TransformerEncoderLayer(*shared)
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias)
            self.encoder = TransformerEncoder(layer, num_encoder_layers, norm)
        self.decoder: Any = custom_decoder
        if custom_decoder is None:
            last = LayerNorm(d_model, layer_norm_eps, bias=bias)
            self.decoder = TransformerDecoder(
                TransformerDecoderLayer(*shared), num_decoder_layers, last
            )
        for parameter in get_parameters(self):
            if parameter.ndim > 1:
                xavier_uniform_(parameter)

    def __call__(  # noqa: PLR0913  # PyTorch's arguments
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Encode `src`, and decode `tgt` with it; masks as of `MultiheadAttention`."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        found: Tensor = self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
            tgt_is_causal, memory_is_causal,
        )  # fmt: skip
        return found

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: str | None = None, dtype: Any = None
    ) -> Tensor:
        """A mask under which position i sees positions up to i: 0, and minus infinity beyond.

        Example:
            >>> Transformer.generate_square_subsequent_mask(2).tolist()
            [[0.0, -inf], [0.0, 0.0]]
        """
        return Tensor.full((sz, sz), float("-inf"), dtype=dtype, device=device).triu(1)


def _plain(mask: Tensor | None, is_causal: bool) -> bool:
    """Whether causality has to be added: with a mask, `is_causal` only says what that is."""
    return is_causal and mask is None


def _activation(given: Activation) -> Callable[[Tensor], Tensor]:
    if callable(given):
        return given
    if given == "relu":
        return Tensor.relu
    if given == "gelu":
        return lambda x: x.gelu("none")
    raise UserError("transformer: unknown activation", got=given, expected="relu or gelu")
