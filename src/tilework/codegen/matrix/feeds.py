"""Which feed a crew has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.matrix.group_feed import GroupFeed
from tilework.codegen.matrix.warp_feed import WarpFeed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.codegen.matrix.crew import Crew
    from tilework.codegen.matrix.feed import Feed, Supply, Work
    from tilework.codegen.matrix.writer import Writer


def feed_for(out: Writer, work: Work, crew: Crew, supplies: Sequence[Supply]) -> Feed:
    """What brings a crew its arrays."""
    return (WarpFeed if crew.is_warps else GroupFeed)(out, work, crew, supplies)
