"""Products whose factor is read through windows: boxes that move, rows of several ranges."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilework.codegen.analysis import analyse
from tilework.codegen.gpu import divide as division
from tilework.codegen.matrix.arrays import array_of_factor
from tilework.codegen.matrix.choose import best_ring, choose_ring_plan
from tilework.codegen.matrix.lower import lower_ring
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.plan.contraction import orientations
from tilework.dtypes import bfloat16, float32
from tilework.ir.build import cast, const, const_index
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.target.known.cuda import cuda_spec

HOPPER = cuda_spec(90)
IMAGES, SIDE, CHANNELS, FILTERS = 2, 5, 8, 16


def total_of(pairs: list[tuple[Node, int]]) -> Node:
    found = const_index(0)
    for node, factor in pairs:
        found = simplify.add(found, simplify.scale(node, factor))
    return found


def convolution(
    step: int,
    *,
    last: bool,
    side: int = SIDE,
    channels: int = CHANNELS,
    filters: int = FILTERS,
    has_taps_last: bool = False,
    images: int = IMAGES,
) -> Node:
    """A window of 3 x 3, one place of zeros around each image; channels last or first.

    Weights are (filters, 3, 3, channels), or (filters, channels, 3, 3) with taps last.
    """
    places = (side - 1) // step + 1
    sizes = (images, filters, places, places, channels, 3, 3)
    image, out, y, x, channel, down, across = (
        RANGE(const_index(size), attrs=RangeAttrs(number)) for number, size in enumerate(sizes)
    )
    row = total_of([(y, step), (down, 1), (const_index(1), -1)])
    column = total_of([(x, step), (across, 1), (const_index(1), -1)])
    inside = simplify.all_of(
        simplify.both(simplify.less(const_index(-1), at), simplify.less(at, const_index(side)))
        for at in (row, column)
    )
    pixels = side * side
    steps = (channels * side, channels, 1) if last else (side, 1, pixels)
    offset = total_of(
        [(image, channels * pixels), (row, steps[0]), (column, steps[1]), (channel, steps[2])]
    )
    size = images * channels * pixels
    source = PARAM(attrs=ParamAttrs(1, (size,), bfloat16))
    value = math.WHERE(
        inside, cast(LOAD(INDEX(source, offset), inside), float32), const(0.0, float32)
    )
    weights = PARAM(attrs=ParamAttrs(2, (filters * channels * 9,), bfloat16))
    strides = (3, 1, 9) if has_taps_last else (3 * channels, channels, 1)
    pairs = zip((down, across, channel), strides, strict=True)
    place = total_of([(out, 9 * channels), *pairs])
    weight = cast(LOAD(INDEX(weights, place)), float32)
    attrs = ReduceAttrs(Fold.ADD, ())
    total = REDUCE(math.MUL(value, weight), channel, down, across, attrs=attrs)
    area = places * places
    at = total_of([(image, filters * area), (out, area), (y, places), (x, 1)])
    target = PARAM(attrs=ParamAttrs(0, (images * filters * area,), float32))
    return SINK(STORE(INDEX(target, at), total))


def exact(source: np.ndarray, weights: np.ndarray, step: int) -> np.ndarray:
    padded = np.pad(source.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    found: np.ndarray = np.einsum(
        "nyxcij,oijc->noyx", windows[:, ::step, ::step], weights.astype(np.float64)
    )
    return found


def run(linear: Node, buffers: list[np.ndarray]) -> None:
    loops = [node for node in linear.src if node.op is RANGE and node.attrs.unit is Unit.THREAD]
    tasks = max(int(loop.src[0].attrs.bits) for loop in loops)
    run_blocks(linear, [x.view(np.uint8).data.cast("B") for x in buffers], blocks=1, tasks=tasks)


def inputs() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(5)
    source = draw.standard_normal((IMAGES, SIDE, SIDE, CHANNELS)).astype(ml_dtypes.bfloat16)
    return source, draw.standard_normal((FILTERS, 3, 3, CHANNELS)).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("step", [1, 2])
def test_windows_are_read_by_boxes_that_move_and_are_zero_outside(step: int) -> None:
    kernel = analyse(normalise_ranges(convolution(step, last=True)))
    found = best_ring(kernel, HOPPER)
    assert found is not None
    assert found.cut.a.array is not None
    assert found.cut.b.array is not None
    plan = choose_ring_plan(kernel, HOPPER)
    assert plan is not None
    source, weights = inputs()
    wanted = exact(source, weights, step)
    got = np.full(wanted.shape, np.nan, np.float32)
    run(lower_ring(kernel, plan, HOPPER), [got, source.ravel(), weights.ravel()])
    assert np.abs(got - wanted).max() <= 1e-6 * np.abs(wanted).max()


def test_pixels_of_several_images_share_a_tile() -> None:
    kernel = analyse(normalise_ranges(convolution(1, last=True)))
    found = best_ring(kernel, HOPPER)
    assert found is not None
    pixels = max((found.cut.a, found.cut.b), key=lambda operand: len(operand.own))
    assert len(pixels.own) == 3


def test_channels_first_are_stored_last_by_a_copy() -> None:
    found = division.divide(convolution(1, last=False, side=32, channels=128, filters=128), HOPPER)
    assert found is not None
    (pack,) = found.packs
    assert pack.sources == (1,)
    assert pack.size_bytes == 2 * IMAGES * 32 * 32 * 128


@pytest.mark.parametrize(("given", "copied"), [((), 1), ((2,), 2), ((1, 2), 1)])
def test_weights_of_a_layer_are_laid_out_for_less(given: tuple[int, ...], copied: int) -> None:
    """What comes from outside, where the image is computed: captured programs copy it once.

    Otherwise the windows are stored, which are smaller.  In both cases k is summed in parts.
    """
    kernel = convolution(
        1, last=True, side=7, channels=512, filters=512, has_taps_last=True, images=1
    )
    found = division.divide(kernel, HOPPER, frozenset(given))
    assert found is not None
    first, sums = found.packs
    assert first.sources == (copied,)
    assert sums.size_bytes == 8 * 4 * 512 * 7 * 7


def test_a_condition_that_bounds_no_axis_makes_no_array() -> None:
    kernel = analyse(normalise_ranges(convolution(1, last=True)))
    contraction = orientations(kernel)[0]
    factor = contraction.a.src[0] if contraction.a.op is math.CAST else contraction.a
    ranges = [*contraction.m, *contraction.n, *contraction.k, *contraction.batch]
    across = simplify.less(contraction.m[-1], contraction.k[0])
    load = next(node for node in kernel.loads if len(node.src) > 1)
    gated = math.WHERE(across, LOAD(load.src[0], across), const(0.0, bfloat16))
    assert factor is not gated
    assert array_of_factor(gated, ranges) is None
