"""Attention of several heads, and the layers of transformers."""

from __future__ import annotations

from collections.abc import Callable

from tilework.base.errors import ShapeError, UserError
from tilework.nn.layers.dropout import Dropout
from tilework.nn.layers.linear import Linear
from tilework.nn.layers.normalization import LayerNorm
from tilework.tensor.tensor import Tensor


class MultiheadAttention:
    """Queries look up values by keys, in several heads at once (Vaswani and others, 2017).

    Args:
        embed_dim: features of the queries and of the output.
        num_heads: parts of the features that look up by themselves.
        dropout: of the weights, while training.
        bias: whether something is added to each projection.
        kdim: features of the keys, `embed_dim` by default.
        vdim: features of the values, `embed_dim` by default.
        batch_first: the batch is the first axis, not the second.

    The names of its weights are PyTorch's, so that its files can be loaded.

    Example:
        >>> attend = MultiheadAttention(8, 2, batch_first=True)
        >>> x = Tensor.ones(3, 5, 8)
        >>> attend(x, x, x)[0].shape
        (3, 5, 8)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
    ) -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise ShapeError(
                "MultiheadAttention: the features don't divide into the heads",
                got=f"{embed_dim} features, {num_heads} heads",
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        sizes = (embed_dim, kdim or embed_dim, vdim or embed_dim)
        if sizes == (embed_dim,) * 3:
            self.in_proj_weight = Tensor.glorot_uniform(3 * embed_dim, embed_dim)
        else:
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = (
                Tensor.glorot_uniform(embed_dim, size) for size in sizes
            )
        self.in_proj_bias = Tensor.zeros(3 * embed_dim) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Apply the layer.

        Args:
            query: (l, n, embed_dim), or (n, l, embed_dim) if batch_first.
            key: (s, n, kdim), likewise.
            value: (s, n, vdim), likewise.
            key_padding_mask: (n, s), True where a key does not count.
            need_weights: give the mean of the heads' weights too.
            attn_mask: (l, s) or (n * num_heads, l, s): True where nothing is looked up, or numbers
                to add.
            is_causal: position i sees positions up to i only.

        Returns:
            The output, and the weights (n, l, s) or None.
        """
        if not self.batch_first:
            query, key, value = (each.transpose(0, 1) for each in (query, key, value))
        q, k, v = (
            self._split(self._projected(each, number))
            for number, each in enumerate((query, key, value))
        )
        mask = self._mask(q, k, key_padding_mask, attn_mask, is_causal)
        drop = self.dropout if Tensor.training else 0.0
        found = q.scaled_dot_product_attention(k, v, mask, drop)
        count, _, length, _ = found.shape
        joined = self.out_proj(found.transpose(1, 2).reshape(count, length, self.embed_dim))
        weights = None
        if need_weights:
            scores = q.matmul(k.transpose(-2, -1)) * (q.shape[-1] ** -0.5)
            weights = (scores if mask is None else scores + mask).softmax(-1).mean(1)
        return (joined if self.batch_first else joined.transpose(0, 1)), weights

    def _projected(self, x: Tensor, number: int) -> Tensor:
        """A query (0), key (1) or value (2) in the features of the heads."""
        size = self.embed_dim
        part = slice(number * size, (number + 1) * size)
        if hasattr(self, "in_proj_weight"):
            weight = self.in_proj_weight[part]
        else:
            weight = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)[number]
        bias = None if self.in_proj_bias is None else self.in_proj_bias[part]
        if x.shape[-1] != weight.shape[1]:
            raise ShapeError(
                "MultiheadAttention: the last axis has another size",
                got=x.shape,
                expected=f"(..., {weight.shape[1]})",
            )
        return x.linear(weight.transpose(), bias)

    def _split(self, x: Tensor) -> Tensor:
        """(n, l, e) -> (n, heads, l, e / heads)."""
        size = self.embed_dim // self.num_heads
        return x.reshape(x.shape[0], x.shape[1], self.num_heads, size).transpose(1, 2)

    def _mask(
        self,
        q: Tensor,
        k: Tensor,
        padding: Tensor | None,
        given: Tensor | None,
        is_causal: bool,
    ) -> Tensor | None:
        """All masks as one summand for the scores."""
        parts: list[Tensor] = []
        if is_causal:
            ones = Tensor.ones(q.shape[2], k.shape[2], device=q.device)
            parts.append(_as_summand(ones.triu(1).ne(0), q))
        if given is not None:
            shaped = given
            if given.ndim == 3:
                shaped = given.reshape(q.shape[0], self.num_heads, *given.shape[1:])
            parts.append(_as_summand(shaped, q))
        if padding is not None:
            parts.append(_as_summand(padding.reshape(padding.shape[0], 1, 1, -1), q))
        total: Tensor | None = None
        for part in parts:
            total = part if total is None else total + part
        return total


def _as_summand(mask: Tensor, like: Tensor) -> Tensor:
    if not mask.dtype.is_bool:
        return mask.cast(like.dtype)
    zeros = Tensor.zeros(*mask.shape, dtype=like.dtype, device=mask.device)
    return mask.where(float("-inf"), zeros)


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

    Example:
        >>> TransformerEncoderLayer(8, 2, 16, batch_first=True)(Tensor.ones(3, 5, 8)).shape
        (3, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
    ) -> None:
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first)
        self.linear1 = Linear(d_model, dim_feedforward)
        self.linear2 = Linear(dim_feedforward, d_model)
        self.norm1 = LayerNorm(d_model, layer_norm_eps)
        self.norm2 = LayerNorm(d_model, layer_norm_eps)
        self.drop = Dropout(dropout)
        self.norm_first = norm_first
        self.activation = _activation(activation)

    def __call__(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Apply the layer; masks as of `MultiheadAttention`."""

        def attend(x: Tensor) -> Tensor:
            found, _ = self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal)
            return self.drop(found)

        def feed(x: Tensor) -> Tensor:
            return self.drop(self.linear2(self.drop(self.activation(self.linear1(x)))))

        if self.norm_first:
            src = src + attend(self.norm1(src))
            return src + feed(self.norm2(src))
        src = self.norm1(src + attend(src))
        return self.norm2(src + feed(src))


def _activation(given: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if callable(given):
        return given
    if given == "relu":
        return Tensor.relu
    if given == "gelu":
        return lambda x: x.gelu("none")
    raise UserError("transformer: unknown activation", got=given, expected="relu or gelu")
