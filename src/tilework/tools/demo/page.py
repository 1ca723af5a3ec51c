"""Find the lines of a photographed page, and make them what the recogniser wants.

Only NumPy, and only float32 arithmetic that is the same everywhere, so that results can be
compared with stored ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilework.base.records import dataclass

Array = np.ndarray[Any, Any]
#: Height of a line for the recogniser, in pixels.
LINE_HEIGHT = 48
# Ink is darker than the mean of the window around it by this much (of 255).
_WINDOW, _CONTRAST = 25, 14
_SMALLEST_LINE = 6


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text: its rectangle on the page, end exclusive."""

    top: int
    bottom: int
    left: int
    right: int


def local_mean(page: Array, window: int) -> Array:
    """Return the mean of the square window around each pixel; edges repeat.

    Shape: (height, width) -> (height, width)
    """
    half = window // 2
    wide = np.pad(page.astype(np.float64), half, mode="edge")
    total = np.pad(wide.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    summed = (
        total[window:, window:]
        - total[:-window, window:]
        - total[window:, :-window]
        + total[:-window, :-window]
    )
    return np.asarray(summed / window**2)


def runs(mask: Array, least: int, gap: int) -> list[tuple[int, int]]:
    """Return the stretches of true values that are at least `least` long, joined over small gaps.

    Example:
        >>> runs(np.array([0, 1, 1, 0, 1, 0, 0, 0, 1], bool), 2, 1)
        [(1, 5)]
    """
    found: list[list[int]] = []
    for place in np.flatnonzero(mask):
        if found and place - found[-1][1] <= gap:
            found[-1][1] = int(place) + 1
        else:
            found.append([int(place), int(place) + 1])
    return [(start, end) for start, end in found if end - start >= least]


def find_lines(page: Array) -> list[Line]:
    """Return the lines of text of a grey page, from top to bottom.

    Shape: page (height, width) uint8
    """
    ink = page < local_mean(page, _WINDOW) - _CONTRAST
    # The page is a little skew, so rows are counted where text surely is: away from the edges.
    has_text: Array = np.greater(ink.mean(1), 0.035)
    lines = []
    for top, bottom in runs(has_text, _SMALLEST_LINE, 1):
        columns = runs(np.asarray(ink[top:bottom].any(0)), 2, LINE_HEIGHT)
        if not columns:
            continue
        left = max(0, columns[0][0] - 4)
        right = min(page.shape[1], columns[-1][1] + 4)
        lines.append(Line(max(0, top - 3), min(page.shape[0], bottom + 3), left, right))
    return lines


def resized(picture: Array, height: int, width: int) -> Array:
    """Resize by bilinear interpolation at pixel centres.

    Shape: (h, w) -> (height, width) float32
    """
    values = picture.astype(np.float32)
    for axis, target in ((0, height), (1, width)):
        size = values.shape[axis]
        place = (np.arange(target, dtype=np.float64) + 0.5) * (size / target) - 0.5
        place = np.clip(place, 0, size - 1)
        low = np.floor(place).astype(np.int64)
        high = np.minimum(low + 1, size - 1)
        share = (place - low).astype(np.float32)
        share = share[:, None] if axis == 0 else share[None, :]
        values = values.take(low, axis) * (1 - share) + values.take(high, axis) * share
    return values


def line_batch(page: Array, lines: list[Line]) -> Array:
    """Cut the lines out, scale them to one height, and put them into one batch.

    Shape: (height, width) -> (lines, 3, 48, widest)
    """
    cuts = []
    for line in lines:
        cut = page[line.top : line.bottom, line.left : line.right]
        width = max(1, round(cut.shape[1] * LINE_HEIGHT / cut.shape[0]))
        cuts.append(resized(cut, LINE_HEIGHT, width))
    # Widths in steps of 32, so that pages alike share one compiled program.
    widest = -(-max(cut.shape[1] for cut in cuts) // 32) * 32
    batch = np.zeros((len(cuts), 3, LINE_HEIGHT, widest), np.float32)
    for row, cut in zip(batch, cuts, strict=True):
        row[:, :, : cut.shape[1]] = (cut / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
    return batch


def decode(best: Array, characters: list[str]) -> str:
    """Read classes per step as text: repeats count once, class 0 is nothing.

    Example:
        >>> decode(np.array([0, 1, 1, 0, 1, 2]), ["", "a", "b"])
        'aab'
    """
    text = []
    before = 0
    for number in best.tolist():
        if number not in (before, 0):
            text.append(characters[number])
        before = number
    return "".join(text)
