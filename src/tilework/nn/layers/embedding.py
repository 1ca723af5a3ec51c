"""A table of vectors, looked up by number."""

from __future__ import annotations

from tilework.tensor.tensor import Tensor


class Embedding:
    """The rows of a table at given positions.

    Args:
        vocab_size: rows of the table.
        embed_size: length of each.

    Shape: (...) integers -> (..., embed_size)
    """

    def __init__(self, vocab_size: int, embed_size: int) -> None:
        self.vocab_size = vocab_size
        self.embed_size = embed_size
        self.weight = Tensor.glorot_uniform(vocab_size, embed_size)

    def __call__(self, idx: Tensor) -> Tensor:
        """Apply the layer."""
        return self.weight[idx]
