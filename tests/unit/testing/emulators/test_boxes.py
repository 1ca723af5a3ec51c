"""Boxes that an emulated card describes are those that a card's copy engine takes."""

from dataclasses import replace

import pytest

from tilework.target.cuda_code import Box
from tilework.testing.emulators.cuda import is_describable

BOX = Box(
    slot=0,
    dtype="bfloat16",
    start_bytes=0,
    sizes=(768, 128),
    strides_bytes=(2, 1536),
    box=(64, 128),
    swizzle_bytes=128,
)


def test_a_box_of_whole_rows_is_taken() -> None:
    assert is_describable(1 << 20, BOX)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(BOX, dtype="float64"),
        replace(BOX, start_bytes=8),
        replace(BOX, strides_bytes=(2, 1538)),
        replace(BOX, box=(64, 257)),
        replace(BOX, box=(128, 128)),  # 256 bytes side by side, 128 are permuted
        replace(BOX, box=(4, 128)),
        replace(BOX, sizes=(768, 0)),
        replace(BOX, steps=(1, 4)),
        replace(BOX, steps=(1, 9), box=(64, 1)),
    ],
)
def test_others_are_refused(wrong: Box) -> None:
    assert not is_describable(1 << 20, wrong)
