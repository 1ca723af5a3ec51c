"""One row of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """What is measured.

    Attributes:
        name: The row's name.
        inputs: (shape, dtype name, scale) of each input.
        ours: Gets tilework's tensors.
        peers: Each gets PyTorch's, in the same order.
        moved_bytes, flops: What it costs at least.
        tolerance: The most error, relative to the result.
        exact: The dtype of the inputs from which the first peer computes the reference.
        settings: tilework's settings that the row names.
        allows_tf32: Whether float32 products may be shortened, for the peers too.
        is_graph: Whether the peers are captured as graphs before they are timed.
    """

    name: str
    inputs: tuple[tuple[tuple[int, ...], str, float], ...]
    ours: Callable[..., Any]
    peers: dict[str, Callable[..., Any]]
    moved_bytes: float = 0.0
    flops: float = 0.0
    tolerance: float = 1e-5
    exact: str = "float64"
    settings: dict[str, Any] = field(default_factory=dict)
    allows_tf32: bool = False
    is_graph: bool = False
