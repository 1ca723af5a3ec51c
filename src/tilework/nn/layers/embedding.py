"""A table of vectors, looked up by number."""

from __future__ import annotations

from tilework.base.errors import IndexingError
from tilework.tensor.tensor import Tensor


class Embedding:
    """The rows of a table at given positions.

    Args:
        vocab_size: rows of the table.
        embed_size: length of each.
        padding_idx: a row that starts as zeros and gets no gradient.

    Shape: (...) integers -> (..., embed_size)
    """

    def __init__(self, vocab_size: int, embed_size: int, padding_idx: int | None = None) -> None:
        self.vocab_size = vocab_size
        self.embed_size = embed_size
        self.weight = Tensor.glorot_uniform(vocab_size, embed_size)
        self.padding_idx = padding_idx
        if padding_idx is not None:
            if not -vocab_size <= padding_idx < vocab_size:
                raise IndexingError(
                    "Embedding: padding_idx is out of range",
                    got=padding_idx,
                    expected=f"{-vocab_size} to {vocab_size - 1}",
                )
            self.padding_idx = padding_idx % vocab_size
            with Tensor.no_grad():
                self.weight[self.padding_idx] = 0.0

    def __call__(self, idx: Tensor) -> Tensor:
        """Apply the layer."""
        found = self.weight[idx]
        if self.padding_idx is None:
            return found
        is_padding = idx.eq(self.padding_idx).unsqueeze(-1)
        return is_padding.where(found.detach(), found)
