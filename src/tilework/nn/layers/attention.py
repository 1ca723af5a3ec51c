"""Attention of several heads."""

from __future__ import annotations

from typing import Any

from tilework.base.errors import ShapeError
from tilework.nn.init import zeros_
from tilework.nn.layers.linear import Linear
from tilework.nn.layers.names import flag
from tilework.tensor.tensor import Tensor


class MultiheadAttention:
    """Queries look up values by keys, in several heads at once (Vaswani and others, 2017).

    Args:
        embed_dim: features of the queries and of the output.
        num_heads: parts of the features that look up by themselves.
        dropout: of the weights, while training.
        bias: whether something is added to each projection.
        add_bias_kv: learn one more key and value.
        add_zero_attn: let queries look up nothing: one more key and value of zeros.
        kdim: features of the keys, `embed_dim` by default.
        vdim: features of the values, `embed_dim` by default.
        batch_first: the batch is the first axis, not the second.

    The names of its weights are PyTorch's, so that its files can be loaded.

    Shape: query (l, n, embed_dim), key (s, n, kdim), value (s, n, vdim) -> (l, n, embed_dim) and
        the weights (n, l, s); see the call

    Example:
        >>> attend = MultiheadAttention(8, 2, batch_first=True)
        >>> x = Tensor.ones(3, 5, 8)
        >>> attend(x, x, x)[0].shape
        (3, 5, 8)
    """

    def __init__(  # noqa: PLR0913  # PyTorch's arguments
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
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
        self.add_zero_attn = flag(add_zero_attn, "add_zero_attn", "MultiheadAttention")
        add_bias_kv = flag(add_bias_kv, "add_bias_kv", "MultiheadAttention")
        sizes = (embed_dim, kdim or embed_dim, vdim or embed_dim)
        if sizes == (embed_dim,) * 3:
            self.in_proj_weight = Tensor.glorot_uniform(3 * embed_dim, embed_dim)
        else:
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = (
                Tensor.glorot_uniform(embed_dim, size) for size in sizes
            )
        self.in_proj_bias = Tensor.zeros(3 * embed_dim).contiguous() if bias else None
        self.bias_k = Tensor.glorot_uniform(1, 1, embed_dim) if add_bias_kv else None
        self.bias_v = Tensor.glorot_uniform(1, 1, embed_dim) if add_bias_kv else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        if self.out_proj.bias is not None:
            zeros_(self.out_proj.bias)

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Apply the layer.

        Args:
            query: (l, n, embed_dim), or (n, l, embed_dim) if batch_first; without n one sequence.
            key: (s, n, kdim), likewise.
            value: (s, n, vdim), likewise.
            key_padding_mask: (n, s), True where a key does not count, or numbers to add.
            need_weights: give the weights too.
            attn_mask: (l, s) or (n * num_heads, l, s): True where nothing is looked up, or numbers
                to add.
            average_attn_weights: give the mean of the heads' weights, not those of each head.
            is_causal: position i sees positions up to i only.

        Returns:
            The output, and the weights (n, l, s), or (n, num_heads, l, s), or None.

        Raises:
            ShapeError: the input has other axes, or other features.
        """
        if query.ndim == 2:
            return self._single(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights,
                is_causal,
            )  # fmt: skip
        if query.ndim != 3 or key.ndim != 3 or value.ndim != 3:
            raise ShapeError(
                "MultiheadAttention: the input has other axes",
                got=f"{query.shape}, {key.shape}, {value.shape}",
                expected="three axes each, or two for one sequence",
            )
        if not self.batch_first:
            query, key, value = (each.transpose(0, 1) for each in (query, key, value))
        q, k, v = (self._projected(each, number) for number, each in enumerate((query, key, value)))
        k, v = self._with_further_keys(k, v)
        q, k, v = self._split(q), self._split(k), self._split(v)
        mask = self._mask(q, k, int(key.shape[1]), key_padding_mask, attn_mask, is_causal)
        drop = self.dropout if Tensor.training else 0.0
        count, _, length, _ = q.shape
        weights = None
        if need_weights:
            scores = q.matmul(k.transpose(-2, -1)) * (q.shape[-1] ** -0.5)
            weights = (scores if mask is None else scores + mask).softmax(-1).dropout(drop)
            found = weights.matmul(v)
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            found = q.scaled_dot_product_attention(k, v, mask, drop)
        joined = self.out_proj(found.transpose(1, 2).reshape(count, length, self.embed_dim))
        return (joined if self.batch_first else joined.transpose(0, 1)), weights

    def _single(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        padding: Tensor | None,
        *rest: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """One sequence, as a batch of one."""
        axis = 0 if self.batch_first else 1
        found, weights = self(
            query.unsqueeze(axis), key.unsqueeze(axis), value.unsqueeze(axis),
            None if padding is None else padding.unsqueeze(0), *rest,
        )  # fmt: skip
        return found.squeeze(axis), None if weights is None else weights.squeeze(0)

    def _with_further_keys(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The learnt key and value, and those of zeros, behind the given ones."""
        like = (k.shape[0], 1, self.embed_dim)
        if self.bias_k is not None and self.bias_v is not None:
            k = k.cat(self.bias_k.expand(*like), dim=1)
            v = v.cat(self.bias_v.expand(*like), dim=1)
        if self.add_zero_attn:
            zeros = Tensor.zeros(*like, dtype=k.dtype, device=k.device)
            k, v = k.cat(zeros, dim=1), v.cat(zeros, dim=1)
        return k, v

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
        given_keys: int,
        padding: Tensor | None,
        given: Tensor | None,
        is_causal: bool,
    ) -> Tensor | None:
        """All masks as one summand for the scores; keys behind the given ones always count."""
        parts: list[Tensor] = []
        if is_causal:
            ones = Tensor.ones(q.shape[2], given_keys, device=q.device)
            parts.append(_as_summand(ones.triu(1).ne(0), q))
        if given is not None:
            shaped = given
            if given.ndim == 3:
                shaped = given.reshape(-1, self.num_heads, *given.shape[1:])
            parts.append(_as_summand(shaped, q))
        if padding is not None:
            parts.append(_as_summand(padding.reshape(padding.shape[0], 1, 1, -1), q))
        total: Tensor | None = None
        for part in parts:
            total = part if total is None else total + part
        further = int(k.shape[2]) - given_keys
        if total is None or not further:
            return total
        return total.pad([*[(0, 0)] * (total.ndim - 1), (0, further)])


def _as_summand(mask: Tensor, like: Tensor) -> Tensor:
    if not mask.dtype.is_bool:
        return mask.cast(like.dtype)
    zeros = Tensor.zeros(*mask.shape, dtype=like.dtype, device=mask.device)
    return mask.where(float("-inf"), zeros)
