"""In which order intermediates are stored, and what never changes with it."""

from __future__ import annotations

from itertools import product

import pytest
from tests.unit.schedule.schedule_builders import (
    conv2d,
    expand,
    linear,
    pad,
    param,
    reasons,
    reduce,
    relu,
    reshape,
    resnet,
    schedule,
    sizes_of,
)

from tilework.codegen.analysis import analyse
from tilework.dtypes import uint16
from tilework.ir.build import const_index
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math, tensor
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify
from tilework.schedule.passes.stored import Stored
from tilework.schedule.schedule import Limits

CHANNELS_LAST = "its axes stored in the order (0, 2, 3, 1)"


def moved(*outputs: Node, limits: Limits | None = None) -> list[str]:
    """The reasons of what is stored in another order than row by row."""
    made = schedule(*outputs, limits=limits)
    return [reason for reason in reasons(made) if "axes stored in the order" in reason]


def pooled(x: Node) -> Node:
    """The greatest of 3 x 3 elements around each."""
    height, width = sizes_of(x)[2:]
    x = pad(x, (0, 0), (0, 0), (1, 1), (1, 1))
    x = tensor.WINDOW(x, attrs=tensor.WindowAttrs(2, height, 3, 1, 1))
    x = tensor.WINDOW(x, attrs=tensor.WindowAttrs(4, width, 3, 1, 1))
    return reduce(x, 3, 5, fold=Fold.MAX)


def chain(size: int = 28, channels: int = 32) -> Node:
    """Two convolutions, one after the other."""
    x = conv2d(param(0, (1, 3, size, size)), param(1, (channels, 3, 3, 3)))
    return conv2d(relu(x), param(2, (channels, channels, 3, 3)))


def test_channels_between_convolutions_are_stored_last() -> None:
    assert moved(chain())[0].endswith(CHANNELS_LAST)


BY_WINDOWS = Limits(layouts_by_windows_on=("CPU",))


def test_devices_that_gain_by_windows_move_what_windows_read() -> None:
    assert moved(chain(), limits=BY_WINDOWS)[0].endswith(CHANNELS_LAST)


def test_devices_that_gain_by_windows_keep_what_long_folds_read() -> None:
    x = conv2d(param(0, (1, 3, 40, 40)), param(1, (32, 3, 3, 3)))
    y = relu(x)
    outputs = (conv2d(y, param(2, (32, 32, 3, 3))), reduce(y, 3, fold=Fold.MAX))
    assert moved(*outputs)
    assert not moved(*outputs, limits=BY_WINDOWS)


def test_devices_that_gain_by_windows_keep_products_without_windows() -> None:
    x = conv2d(param(0, (1, 64, 28, 28)), param(1, (32, 64, 1, 1)))
    y = conv2d(pooled(relu(x)), param(2, (64, 32, 1, 1)))
    assert moved(y)
    assert not moved(y, limits=BY_WINDOWS)


def test_what_a_user_sees_keeps_its_order() -> None:
    first = conv2d(param(0, (1, 3, 28, 28)), param(1, (32, 3, 3, 3)))
    second = conv2d(first, param(2, (32, 32, 3, 3)))
    assert moved(first, second) == []


def test_all_values_of_a_residual_network_move_together() -> None:
    found = moved(resnet(4, width=32))
    assert len(found) == 8
    assert all(reason.endswith(CHANNELS_LAST) for reason in found)


def test_devices_without_plans_for_it_keep_rows() -> None:
    assert moved(chain(), limits=Limits(layouts_on=())) == []


def test_rows_that_products_want_stay_rows() -> None:
    x = relu(linear(param(0, (64, 256)), param(1, (256, 256)), param(2, (256,))))
    assert moved(linear(x, param(3, (256, 256)), param(4, (256,)))) == []


def test_a_value_whose_bits_are_read_keeps_its_order() -> None:
    x = conv2d(param(0, (1, 3, 28, 28)), param(1, (32, 3, 3, 3)))
    bits = tensor.CONTIGUOUS(math.BITCAST(x, attrs=math.CastAttrs(uint16)))
    assert moved(conv2d(x, param(2, (32, 32, 3, 3))), bits) == []


def test_a_reduction_of_outer_loops_is_not_repeated() -> None:
    x = pooled(conv2d(param(0, (1, 16, 24, 24)), param(1, (64, 16, 1, 1)), padding=0))
    squeezed = reduce(x, 2, 3)
    row = reshape(squeezed, 1, 1, 64)
    factors = math.MUL(
        expand(row, (1, 64, 64)), expand(reshape(param(2, (64, 64)), 1, 64, 64), (1, 64, 64))
    )
    weights = reshape(reduce(factors, 2), 1, 64, 1, 1)
    scaled = relu(math.MUL(x, expand(weights, (1, 64, 24, 24))))
    results = [conv2d(scaled, param(slot, (64, 64, 3, 3))) for slot in (3, 4)]
    made = schedule(*results)
    body = next(call.src[0] for call in made.linear.src if _is_scaled(call.src[0]))
    (summed,) = [node for node in toposort(body) if node.op is tensor.REDUCE]
    (outside,) = analyse(body).free.of(summed)
    assert outside.attrs.number == 0


def _is_scaled(body: Node) -> bool:
    """Does a kernel compute the weights of channels and use them at once?"""
    return any(node.op is math.MAXIMUM for node in toposort(body.src[0].src[1])) and any(
        node.op is tensor.REDUCE for node in toposort(body)
    )


def test_parts_that_are_joined_are_reduced_once() -> None:
    x = param(0, (1, 32, 16, 16))
    joined = math.ADD(
        pad(pooled(x), (0, 0), (0, 96), (0, 0), (0, 0)), pad(x, (0, 0), (32, 64), (0, 0), (0, 0))
    )
    assert any("would be computed 4 times" in reason for reason in reasons(schedule(joined)))


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0)])
def test_every_element_has_a_place_of_its_own(order: tuple[int, ...]) -> None:
    shape = (2, 3, 4)
    stored = Stored(order)
    places = [
        simplify.value_of(stored.offset([const_index(position) for position in at], shape))
        for at in product(*map(range, shape))
    ]
    assert sorted(place for place in places if place is not None) == list(range(24))


def test_rows_of_factors_that_are_normalised_on_the_way_stay_rows() -> None:
    x = relu(linear(param(0, (128, 256)), param(1, (256, 768)), param(2, (768,))))
    means = reshape(reduce(x, 1), 128, 1)
    centred = math.SUB(x, expand(means, (128, 768)))
    y = relu(linear(centred, param(3, (768, 1024)), param(4, (1024,))))
    assert moved(linear(y, param(5, (1024, 256)), param(6, (256,)))) == []
