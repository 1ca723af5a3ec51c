"""Pictures and sound from files, and into them, by Pillow and by soundfile."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import Any

from tilework import dtypes
from tilework.base.errors import ModelFileError, ShapeError, UnsupportedError
from tilework.tensor.tensor import Tensor
from tilework.tensor.wrong_calls import tell

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def read_image(file: str | Path | bytes, channels: int = 3, device: str | None = None) -> Tensor:
    """The pixels of a picture, of any format that Pillow reads.

    Args:
        file: its path, or its bytes.
        channels: 1 for grey, 3 for red, green and blue, 4 with opacity.
        device: where the tensor lives.

    Shape: (height, width, channels), uint8

    Raises:
        ModelFileError: it is no picture.
        UnsupportedError: Pillow is not installed.

    Example:
        >>> import io
        >>> from PIL import Image
        >>> file = io.BytesIO()
        >>> Image.new("RGB", (4, 2), (9, 0, 0)).save(file, "PNG")
        >>> read_image(file.getvalue()).shape
        (2, 4, 3)
    """
    pictures = _library("PIL.Image", "pillow")
    if channels not in _MODES:
        raise ShapeError("read_image: unknown channels", got=channels, expected="1, 3 or 4")
    import numpy as np

    content = _opened(file)
    try:
        with pictures.open(content) as picture:
            pixels = np.asarray(picture.convert(_MODES[channels]))
    except (OSError, SyntaxError, ValueError, pictures.DecompressionBombError) as error:
        raise ModelFileError(
            "read_image: this is no picture", got=_described(file), try_=str(error)
        ) from error
    return Tensor(pixels.reshape(*pixels.shape[:2], channels), device=device)


def write_image(file: str | Path, pixels: Tensor) -> None:
    """Write pixels to a picture, whose format the name of the file tells.

    Args:
        file: its path.
        pixels: uint8, (height, width) or (height, width, 1, 3 or 4).

    Raises:
        ShapeError: the pixels have another shape or dtype.
        UnsupportedError: Pillow is not installed.
    """
    pictures = _library("PIL.Image", "pillow")
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.ndim not in (2, 3) or channels not in _MODES or pixels.dtype is not dtypes.uint8:
        raise ShapeError(
            "write_image: these are no pixels",
            got=f"{pixels.dtype.name}{pixels.shape}",
            expected="uint8 of (height, width, channels)",
        )
    data = pixels.numpy()
    picture = pictures.fromarray(data[..., 0] if channels == 1 and data.ndim == 3 else data)
    picture.save(file)


def read_audio(file: str | Path | bytes, device: str | None = None) -> tuple[Tensor, int]:
    """The samples of a sound, of any format that soundfile reads, and their rate.

    Args:
        file: its path, or its bytes.
        device: where the tensor lives.

    Returns:
        Samples from -1 to 1, float32 of (channels, samples), and samples per second.

    Raises:
        ModelFileError: it is no sound.
        UnsupportedError: soundfile is not installed.
    """
    sounds = _library("soundfile", "soundfile")
    content = _opened(file)
    try:
        samples, rate = sounds.read(content, dtype="float32", always_2d=True)
    except (OSError, RuntimeError, TypeError) as error:
        raise ModelFileError(
            "read_audio: this is no sound", got=_described(file), try_=str(error)
        ) from error
    return Tensor(samples.T, device=device), int(rate)


def write_audio(file: str | Path, samples: Tensor, rate: int) -> None:
    """Write samples to a sound, whose format the name of the file tells.

    Args:
        file: its path.
        samples: floats from -1 to 1, (channels, samples) or (samples,).
        rate: samples per second.

    Raises:
        ShapeError: the samples have another shape or dtype.
        UnsupportedError: soundfile is not installed.
    """
    sounds = _library("soundfile", "soundfile")
    if samples.ndim not in (1, 2) or not samples.dtype.is_float:
        raise ShapeError(
            "write_audio: these are no samples",
            got=f"{samples.dtype.name}{samples.shape}",
            expected="floats of (channels, samples)",
        )
    sounds.write(file, samples.float().numpy().T, rate)


def _library(module: str, package: str) -> Any:
    """A library that only this module needs."""
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:
        raise UnsupportedError(
            f"media: {package} is not installed",
            got=str(error),
            try_=f"pip install {package}",
        ) from error


def _opened(file: str | Path | bytes) -> Any:
    return io.BytesIO(file if isinstance(file, bytes) else Path(file).read_bytes())


def _described(file: str | Path | bytes) -> str:
    return f"{len(file)} bytes" if isinstance(file, bytes) else str(file)


tell(__name__, ("read_image", "write_image", "read_audio", "write_audio"))
