"""Resize and Upsample, axis by axis.

Where references differ on scales that are not whole (the size is rounded down, so size ratio and
scale disagree), the *given* scale counts for coordinates, as in ONNX Runtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tilework import dtypes
from tilework.base.errors import ModelFileError, UnsupportedError
from tilework.base.records import dataclass
from tilework.frontends.onnx.call import place_of
from tilework.frontends.onnx.ops.shape import taken
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import Array, full, tensor_of

if TYPE_CHECKING:
    from tilework.frontends.onnx.call import Call
    from tilework.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """How one axis is resized: sizes, scale, and the region of interest."""

    size: int
    target: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, slots=True)
class Method:
    """The attributes that are the same for all axes."""

    mode: str
    coordinates: str
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0


def _symmetric(plan: AxisPlan, x: Array) -> Array:
    adjustment = plan.target / (plan.scale * plan.size)
    centre = plan.size / 2
    return centre * (1 - adjustment) + (x + 0.5) / plan.scale - 0.5


def _crop(plan: AxisPlan, x: Array) -> Array:
    last = plan.size - 1
    if plan.target > 1:
        return plan.start * last + x * (plan.end - plan.start) * last / (plan.target - 1)
    return np.full_like(x, 0.5 * (plan.start + plan.end) * last)


_COORDINATES: dict[str, Callable[[AxisPlan, Array], Array]] = {
    "half_pixel": lambda plan, x: (x + 0.5) / plan.scale - 0.5,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda plan, x: (
        (x + 0.5) / plan.scale - 0.5 if plan.target > 1 else np.zeros_like(x)
    ),
    "align_corners": lambda plan, x: (
        x * (plan.size - 1) / (plan.target - 1) if plan.target > 1 else np.zeros_like(x)
    ),
    "asymmetric": lambda plan, x: x / plan.scale,
    "tf_half_pixel_for_nn": lambda plan, x: (x + 0.5) / plan.scale,
    "tf_crop_and_resize": _crop,
}
_NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def resized_axis(x: Tensor, axis: int, plan: AxisPlan, method: Method) -> Tensor:
    """Resize one axis.

    Raises:
        UnsupportedError: an unknown mode.
    """
    if method.coordinates not in _COORDINATES:
        raise UnsupportedError("onnx: Resize has an unknown mode", got=method.coordinates)
    # Coordinates are float32 in the references, and near a tie that decides.
    kind = np.float32 if method.mode == "nearest" else np.float64
    steps = np.arange(plan.target, dtype=kind)
    places = np.asarray(_COORDINATES[method.coordinates](plan, steps))
    if method.mode == "nearest":
        rounded = _NEAREST[method.nearest](places).astype(np.int64)
        y = _nearest(x, axis, np.clip(rounded, 0, plan.size - 1))
    else:
        y = _weighted(x, axis, *_taps(places, plan, method))
    if method.coordinates != "tf_crop_and_resize":
        return y
    inside = (places >= 0) & (places <= plan.size - 1)
    if inside.all():
        return y
    lines = tuple(-1 if dim == axis else 1 for dim in range(x.ndim))
    mask = tensor_of(inside.reshape(lines), x.device)
    return mask.where(y, full((), method.extrapolation, y.dtype, y.device))


def _nearest(x: Tensor, axis: int, places: Array) -> Tensor:
    """Take elements; a whole-number enlargement is a view."""
    size, target = x.shape[axis], len(places)
    factor = target // size if size else 1
    if factor > 1 and target == factor * size and (places == np.arange(target) // factor).all():
        shape = tuple(x.shape)
        spread = (*shape[: axis + 1], 1, *shape[axis + 1 :])
        wide = (*shape[: axis + 1], factor, *shape[axis + 1 :])
        joined = (*shape[:axis], target, *shape[axis + 1 :])
        return x.reshape(spread).expand(wide).reshape(joined)
    return taken(x, axis, places)


def _taps(places: Array, plan: AxisPlan, method: Method) -> tuple[Array, Array]:
    """Return which elements each result reads, (target, taps), and their weights."""
    shrinks = method.antialias and plan.scale < 1
    stretch = plan.scale if shrinks else 1.0
    radius = (1.0 if method.mode == "linear" else 2.0) / stretch
    base = np.floor(places).astype(np.int64)
    reach = math.ceil(radius)
    offsets = np.arange(1 - reach, reach + 1)
    if shrinks:
        offsets = np.arange(-reach, reach + 2)
    index = base[:, None] + offsets
    distance = (places[:, None] - index) * stretch
    weights = _linear(distance) if method.mode == "linear" else _cubic(distance, method.cubic)
    outside = (index < 0) | (index >= plan.size)
    if method.exclude_outside:
        weights = np.where(outside, 0.0, weights)
    if method.exclude_outside or shrinks:
        weights = weights / weights.sum(1, keepdims=True)
    used = (weights != 0).any(0)
    return np.clip(index, 0, plan.size - 1)[:, used], weights[:, used]


def _linear(distance: Array) -> Array:
    return np.asarray(np.maximum(0.0, 1 - np.abs(distance)))


def _cubic(distance: Array, a: float) -> Array:
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _weighted(x: Tensor, axis: int, index: Array, weights: Array) -> Tensor:
    kind = np.float64 if x.dtype.bits == 64 and x.dtype.is_float else np.float32
    wide = x if x.dtype.is_float else x.cast(dtypes.float32)
    lines = tuple(-1 if dim == axis else 1 for dim in range(x.ndim))
    total = None
    for tap in range(index.shape[1]):
        factor = tensor_of(weights[:, tap].astype(kind).reshape(lines), x.device)
        part = taken(wide, axis, index[:, tap]) * factor.cast(wide.dtype)
        total = part if total is None else total + part
    assert total is not None
    return total if x.dtype.is_float else total.round().cast(x.dtype)


# --- the operators ----------------------------------------------------------------------------


def _resized(x: Tensor, plans: dict[int, AxisPlan], method: Method) -> Tensor:
    for axis, plan in plans.items():
        is_same = plan.size == plan.target and plan.scale == 1.0
        if not is_same or method.coordinates == "tf_crop_and_resize":
            x = resized_axis(x, axis, plan, method)
    return x


@onnx_op("Upsample", host=(1,))
def upsample(call: Call, x: Tensor, scales: Array | None = None) -> Tensor:
    """The forerunner of Resize: asymmetric coordinates, rounded down."""
    factors = call.attribute("scales", None) if scales is None else scales
    mode = call.text("mode", "nearest")
    method = Method("linear" if mode == "bilinear" else mode, "asymmetric", "floor")
    return _resized(x, _by_scales(x, range(x.ndim), np.asarray(factors)), method)


@onnx_op("Resize", since=10, host=(1,))
def resize_first(call: Call, x: Tensor, scales: Array) -> Tensor:
    """Version 10 is Upsample that may also shrink."""
    method = Method(call.text("mode", "nearest"), "asymmetric", "floor")
    return _resized(x, _by_scales(x, range(x.ndim), scales), method)


@onnx_op("Resize", since=11, host=(1, 2, 3))
def resize(
    call: Call,
    x: Tensor,
    region: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
) -> Tensor:
    method = Method(
        mode=call.text("mode", "nearest"),
        coordinates=call.text("coordinate_transformation_mode", "half_pixel"),
        nearest=call.text("nearest_mode", "round_prefer_floor"),
        cubic=call.number("cubic_coeff_a", -0.75),
        exclude_outside=bool(call.integer("exclude_outside", 0)),
        antialias=bool(call.integer("antialias", 0)),
        extrapolation=call.number("extrapolation_value", 0.0),
    )
    axes = [place_of(call, axis, x.ndim) for axis in call.integers("axes", tuple(range(x.ndim)))]
    by_sizes, by_scales = (row is not None and row.size > 0 for row in (sizes, scales))
    if by_sizes and by_scales:
        raise ModelFileError(f"onnx: {call.node} has both scales and sizes")
    if sizes is not None and by_sizes:
        plans = _by_sizes(call, x, axes, [int(size) for size in sizes])
    elif scales is not None and by_scales:
        plans = _by_scales(x, axes, scales)
    else:
        raise UnsupportedError("onnx: Resize has neither scales nor sizes", got=str(call.node))
    if region is not None and region.size and method.coordinates == "tf_crop_and_resize":
        plans = {
            axis: AxisPlan(
                plan.size, plan.target, plan.scale,
                float(region[position]), float(region[position + len(axes)]),
            )
            for position, (axis, plan) in enumerate(plans.items())
        }  # fmt: skip
    return _resized(x, plans, method)


def _by_scales(x: Tensor, axes: list[int] | range, scales: Array) -> dict[int, AxisPlan]:
    if not (np.isfinite(scales).all() and (scales > 0).all()):
        raise ModelFileError("onnx: scales that are not above 0", got=str(scales.tolist()))
    plans = {}
    for axis, scale in zip(axes, (float(value) for value in scales), strict=True):
        size = x.shape[axis]
        plans[axis] = AxisPlan(size, math.floor(size * scale), scale)
    return plans


def _by_sizes(call: Call, x: Tensor, axes: list[int], sizes: list[int]) -> dict[int, AxisPlan]:
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    ratios = [size / x.shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    if policy != "stretch":
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        return {
            axis: AxisPlan(x.shape[axis], _round_half_up(ratio * x.shape[axis]), ratio)
            for axis in axes
        }
    return {
        axis: AxisPlan(x.shape[axis], size, ratio)
        for axis, size, ratio in zip(axes, sizes, ratios, strict=True)
    }


def _round_half_up(value: float) -> int:
    return math.floor(value + 0.5)
