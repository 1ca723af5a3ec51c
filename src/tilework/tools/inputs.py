"""Inputs for a model: from files, from the command line, or seeded by the signature."""

from __future__ import annotations

import itertools
import re
import wave
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilework.base.errors import ModelFileError, TileworkError, UnsupportedError, UserError
from tilework.base.text import nearest
from tilework.frontends.onnx.element_types import EXTENSION_TYPES, numpy_dtype
from tilework.frontends.onnx.graph import Graph, ValueInfo

if TYPE_CHECKING:
    from tilework.onnx import OnnxRunner

Array = np.ndarray[Any, Any]
#: Tried in turn for sizes that a model leaves open: (one for pictures and series, one for rows).
_GUESSES = (
    {"row": 16, "picture": (224, 224)},
    {"row": 64, "picture": (48, 320)},
    {"row": 128, "picture": (64, 160)},
    {"row": 512, "picture": (32, 32)},
    {"row": 1, "picture": (416, 416)},
    {"row": 576, "picture": (640, 640)},
)  # fmt: skip
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf)|true|false")


# --- from the command line ----------------------------------------------------------------------


def split_pair(text: str, option: str) -> tuple[str, str]:
    """Split `NAME=VALUE`.

    Raises:
        UserError: there is no name or no value.
    """
    name, sign, value = text.partition("=")
    if not sign or not name or not value:
        raise UserError(f"{option}: this is not NAME=VALUE", got=text)
    return name, value


def read_input(text: str, infos: Sequence[ValueInfo]) -> tuple[str, Array]:
    """Read what `--input` names: an .npy file, a picture, a sound, or a number.

    Raises:
        UserError: an unknown input, or a file that does not fit it.
        ModelFileError: the file cannot be read.
    """
    name, value = split_pair(text, "--input")
    known = {info.name: info for info in infos}
    if name not in known:
        close = nearest(name, known)
        raise UserError(
            f"--input: the model has no input {name!r}",
            expected=", ".join(known),
            try_=None if close is None else f"`--input {close}={value}`",
        )
    info = known[name]
    if _NUMBER.fullmatch(value.lower()):
        return name, _number(value.lower(), info)
    path = Path(value)
    readers = {".npy": _read_array, ".png": _read_picture, ".jpg": _read_picture}
    readers |= {".jpeg": _read_picture, ".wav": _read_sound}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UserError(
            "--input: this kind of file is not known", got=value, expected=".npy, .png or .wav"
        )
    if not path.exists():
        raise ModelFileError("--input: there is no such file", got=value)
    return name, reader(path, info)


def _number(value: str, info: ValueInfo) -> Array:
    number: float | bool = value == "true" if value in ("true", "false") else float(value)
    shape = tuple(size if isinstance(size, int) else 1 for size in info.shape or ())
    return np.full(shape, number, _dtype_of(info))


def _dtype_of(info: ValueInfo) -> np.dtype[Any]:
    return np.dtype(np.float32) if info.dtype is None else numpy_dtype(info.dtype)


def _read_array(path: Path, info: ValueInfo) -> Array:
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ModelFileError(
            "--input: the file is not a NumPy array", got=str(path), expected="an .npy file"
        ) from error
    return array


def _read_picture(path: Path, info: ValueInfo) -> Array:
    """A picture in [0, 1], as the input's layout and sizes want it."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise UnsupportedError(
            "--input: pictures need the package `pillow`", try_="pip install 'tilework[viz]'"
        ) from error
    shape = info.shape
    if shape is None or len(shape) != 4:
        raise UserError("--input: a picture needs an input of four axes", got=str(info))
    is_last = shape[3] in (1, 3) and shape[1] not in (1, 3)
    channels = shape[3] if is_last else shape[1]
    sizes = shape[1:3] if is_last else shape[2:4]
    try:
        picture = Image.open(path).convert("L" if channels == 1 else "RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise ModelFileError("--input: the file is not a picture", got=str(path)) from error
    height, width = (
        wanted if isinstance(wanted, int) else own
        for wanted, own in zip(sizes, (picture.height, picture.width), strict=True)
    )
    if (width, height) != picture.size:
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(picture)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    dtype = _dtype_of(info)
    values = pixels.astype(dtype)
    if dtype.kind == "f":
        values = (pixels / np.float32(255)).astype(dtype)
    return np.ascontiguousarray((values if is_last else values.transpose(2, 0, 1))[None])


def _read_sound(path: Path, info: ValueInfo) -> Array:
    """Mono samples in [-1, 1), with the axes that the input has."""
    try:
        with wave.open(str(path)) as sound:
            width, channels = sound.getsampwidth(), sound.getnchannels()
            data = sound.readframes(sound.getnframes())
    except (wave.Error, EOFError) as error:
        raise ModelFileError("--input: the file is not a wave file", got=str(path)) from error
    kinds: dict[int, np.dtype[Any]] = {
        1: np.dtype(np.uint8),
        2: np.dtype("<i2"),
        4: np.dtype("<i4"),
    }
    if width not in kinds:
        raise UnsupportedError("--input: this sample width is not supported", got=f"{width} bytes")
    samples = np.frombuffer(data, kinds[width]).astype(np.float32).reshape(-1, channels).mean(1)
    samples = (samples - 128) / 128 if width == 1 else samples / 2 ** (8 * width - 1)
    shape = info.shape or (1, None)
    free = [axis for axis, size in enumerate(shape) if not isinstance(size, int) or size > 1]
    axis = free[-1] if free else len(shape) - 1
    wanted = shape[axis]
    if isinstance(wanted, int):
        samples = np.resize(np.pad(samples, (0, max(0, wanted - len(samples)))), wanted)
    sizes = [1] * len(shape)
    sizes[axis] = len(samples)
    return np.asarray(samples.reshape(sizes).astype(_dtype_of(info)))


# --- by the signature -----------------------------------------------------------------------------


def seeded_inputs(
    runner: OnnxRunner, given: Mapping[str, Array], sizes: Mapping[str, int], seed: int
) -> dict[str, Array]:
    """Return `given` and made-up values for all other inputs.

    Sizes that the model leaves open come from `sizes` (by name, or as `input.axis`), else the
    first guess that the graph accepts is taken.

    Raises:
        UserError: `sizes` names a size that the model does not leave open.
        ShapeError: no guess fits; the error of the last one.
    """
    _check_sizes(runner.inputs, sizes)
    bounds = index_bounds(runner.model.graph)
    failure: TileworkError | None = None
    for guess in _guesses(runner.inputs, given):
        generator = np.random.default_rng(seed)
        made = dict(given)
        for info in runner.inputs:
            if info.name not in made:
                shape = _shape(info, sizes, guess, _bound_names(runner.inputs, given))
                made[info.name] = _values(info, shape, bounds.get(info.name), generator)
        try:
            runner.check(made)
        except TileworkError as error:
            failure = error
            continue
        return made
    if failure is None:
        raise UserError("--dim: the model has no input to make", got=str(runner.inputs))
    failure.add_note("while looking for sizes that the graph accepts; give them with --dim NAME=N")
    raise failure


def open_sizes(infos: Sequence[ValueInfo]) -> dict[str, tuple[str, int]]:
    """Return each name that `--dim` may give, with the first input and axis that it is for."""
    found: dict[str, tuple[str, int]] = {}
    for info in infos:
        for axis, size in enumerate(info.shape or ()):
            if not isinstance(size, int):
                found.setdefault(size or f"{info.name}.{axis}", (info.name, axis))
    return found


def _check_sizes(infos: Sequence[ValueInfo], sizes: Mapping[str, int]) -> None:
    places = {
        f"{info.name}.{axis}"
        for info in infos
        for axis, size in enumerate(info.shape or ())
        if not isinstance(size, int)
    }
    is_ranked = all(info.shape is not None for info in infos)
    for name in sizes:
        if is_ranked and name not in places and name not in open_sizes(infos):
            raise UserError(
                "--dim: the model leaves open no size of this name",
                got=name,
                expected=", ".join(open_sizes(infos)) or "none: every size is fixed",
            )


def _guesses(infos: Sequence[ValueInfo], given: Mapping[str, Array]) -> Iterator[dict[str, Any]]:
    is_open = any(
        not isinstance(size, int)
        for info in infos
        if info.name not in given
        for size in info.shape or ()
    )
    yield from _GUESSES if is_open else _GUESSES[:1]


def _bound_names(infos: Sequence[ValueInfo], given: Mapping[str, Array]) -> dict[str, int]:
    """The named sizes that given inputs fix."""
    return {
        size: own
        for info in infos
        if info.name in given and info.shape is not None
        for size, own in zip(info.shape, given[info.name].shape, strict=False)
        if isinstance(size, str)
    }


def _shape(
    info: ValueInfo, sizes: Mapping[str, int], guess: Mapping[str, Any], fixed: Mapping[str, int]
) -> tuple[int, ...]:
    shape = []
    for axis, size in enumerate(info.shape or ()):
        own = f"{info.name}.{axis}"
        if isinstance(size, int):
            shape.append(size)
        elif own in sizes or size in sizes:
            shape.append(sizes[own] if own in sizes else sizes[str(size)])
        elif size in fixed:
            shape.append(fixed[str(size)])
        else:
            shape.append(_open_size(info, axis, guess))
    return tuple(shape)


def _open_size(info: ValueInfo, axis: int, guess: Mapping[str, Any]) -> int:
    rank = len(info.shape or ())
    if axis == 0 or rank == 1:
        return 1
    if rank == 4:
        is_last = (info.shape or ())[3] in (1, 3)
        place = axis - (1 if is_last else 2)
        return int(guess["picture"][place]) if place in (0, 1) else 3
    return int(guess["row"])


def _values(
    info: ValueInfo, shape: tuple[int, ...], bound: int | None, generator: np.random.Generator
) -> Array:
    dtype = _dtype_of(info)
    if info.dtype in EXTENSION_TYPES:
        raise UserError("--input: give this input as a file", got=str(info))
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        limit = 2 if bound is None else max(1, bound)
        return generator.integers(0, min(limit, np.iinfo(dtype).max), shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


# --- how large an integer may be --------------------------------------------------------------


# Operators whose result holds the integers of an operand (first position unless listed).
_CARRIERS: dict[str, tuple[int, ...] | None] = {
    "Cast": (0,), "Identity": (0,), "Reshape": (0,), "Unsqueeze": (0,), "Squeeze": (0,),
    "Transpose": (0,), "Flatten": (0,), "Expand": (0,), "Slice": (0,), "Split": (0,),
    "Tile": (0,), "Pad": (0,), "Gather": (0,), "GatherElements": (0,), "GatherND": (0,),
    "Concat": None, "Where": (1, 2), "Max": None, "Min": None, "Add": None, "Sub": None,
    "Clip": (0,), "ArgMax": (0,),
}  # fmt: skip


def index_bounds(graph: Graph) -> dict[str, int]:
    """Return, for each input whose integers end up as indices, the size that they must stay below.

    A size that only a run gives counts as 1, so that the index is 0.
    """
    origins: dict[str, set[str]] = {info.name: {info.name} for info in graph.inputs}
    bounds: dict[str, int] = {}
    for node in graph.nodes:
        if node.op in ("Gather", "GatherElements", "OneHot") and len(node.inputs) > 1:
            place = 0 if node.op == "OneHot" else 1
            limit = _indexed_size(graph, node)
            for name in origins.get(node.inputs[place], ()):
                bounds[name] = min(bounds.get(name, limit), limit)
        carried = _CARRIERS.get(node.op, ())
        names = (
            node.inputs
            if carried is None
            else [node.inputs[index] for index in carried if index < len(node.inputs)]
        )
        found = set(itertools.chain.from_iterable(origins.get(name, ()) for name in names))
        for output in node.outputs:
            if found:
                origins[output] = set(found)
    return bounds


def _indexed_size(graph: Graph, node: Any) -> int:
    if node.op == "OneHot":
        depth = graph.constants.get(node.inputs[1])
        return 1 if depth is None else int(depth.reshape(-1)[0])
    table = graph.constants.get(node.inputs[0])
    if table is None or not table.ndim:
        return 1
    axis = int(node.attributes.get("axis", 0))
    return int(table.shape[axis])
