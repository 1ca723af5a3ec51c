"""Tables of vectors, looked up by number, one by one or in bags."""

from __future__ import annotations

from typing import Any, Self

from tilework.base.errors import ShapeError
from tilework.nn import functional
from tilework.nn.functional.layers import row_of
from tilework.nn.layers.names import also_named
from tilework.tensor.tensor import Tensor


class Embedding:
    """The rows of a table at given positions.

    Args:
        vocab_size: rows of the table; also named `num_embeddings`.
        embed_size: length of each; also named `embedding_dim`.
        padding_idx: a row that starts as zeros and gets no gradient.
        max_norm: rows that are looked up and longer are first made so long, in the table itself.
        norm_type: the p of the norm.
        scale_grad_by_freq: divide a row's gradient by how often it is looked up.
        sparse: accepted; gradients are whole tensors.

    Shape: (...) integers -> (..., embed_size)

    Raises:
        IndexingError: `padding_idx` is no row.
    """

    @also_named(num_embeddings="vocab_size", embedding_dim="embed_size")
    def __init__(
        self,
        vocab_size: int,
        embed_size: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> None:
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        self.vocab_size = vocab_size
        self.embed_size = embed_size
        self.padding_idx = row_of(padding_idx, vocab_size, type(self).__name__)
        self.weight = self._first_values(vocab_size, embed_size)
        if self.padding_idx is not None:
            with Tensor.no_grad():
                self.weight[self.padding_idx] = 0.0

    @staticmethod
    def _first_values(rows: int, length: int) -> Tensor:
        return Tensor.glorot_uniform(rows, length)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, **options: Any
    ) -> Self:
        """The layer of a table that is there.

        Args:
            embeddings: the table, which the layer uses itself.
            freeze: whether optimizers leave it alone.
            padding_idx: a row that gets no gradient.
            options: further arguments of the layer.

        Raises:
            ShapeError: the table is no matrix.

        Example:
            >>> table = Tensor([[1.0, 2.0], [3.0, 4.0]])
            >>> Embedding.from_pretrained(table)(Tensor([1])).tolist()
            [[3.0, 4.0]]
        """
        if embeddings.ndim != 2:
            raise ShapeError(f"{cls.__name__}: the table is no matrix", got=f"{embeddings.shape}")
        rows, length = (int(size) for size in embeddings.shape)
        made = cls(rows, length, **options)
        made.padding_idx = row_of(padding_idx, rows, cls.__name__)
        made.weight = embeddings.requires_grad_(not freeze)
        return made

    def __call__(self, idx: Tensor) -> Tensor:
        """Apply the layer."""
        return functional.embedding(
            idx, self.weight, self.padding_idx, self.max_norm, self.norm_type,
            self.scale_grad_by_freq,
        )  # fmt: skip


class EmbeddingBag(Embedding):
    """Rows of a table, put together bag by bag; see `Tensor.embedding_bag`.

    Args:
        num_embeddings: rows of the table.
        embedding_dim: length of each.
        max_norm: as of `Embedding`.
        norm_type: as of `Embedding`.
        scale_grad_by_freq: as of `Embedding`; not in mode "max".
        mode: "sum", "mean" or "max".
        sparse: accepted; gradients are whole tensors.
        include_last_offset: the last offset is the end of the last bag.
        padding_idx: a row that does not count.

    Shape: (bags, n), or (n,) with offsets -> (bags, embedding_dim)

    Raises:
        IndexingError: `padding_idx` is no row.

    Example:
        >>> EmbeddingBag(10, 3, mode="sum")(Tensor([1, 2, 4, 5]), Tensor([0, 3])).shape
        (2, 3)
    """

    def __init__(  # noqa: PLR0913  # PyTorch's arguments
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq,
            sparse,
        )  # fmt: skip
        self.mode = mode
        self.include_last_offset = include_last_offset

    @staticmethod
    def _first_values(rows: int, length: int) -> Tensor:
        return Tensor.randn(rows, length)

    def __call__(
        self,
        idx: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """Apply the layer."""
        return functional.embedding_bag(
            idx, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.mode, self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip
