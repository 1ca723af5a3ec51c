"""Pictures and sound from files, and into them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tilework import Tensor
from tilework.base.errors import ModelFileError, ShapeError, UnsupportedError
from tilework.nn.media import read_audio, read_image, write_audio, write_image

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 4)).astype(np.uint8)


@pytest.mark.needs("package:PIL")
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_picture_is_read_as_it_was_written(channels: int, tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    write_image(file, Tensor(PIXELS[..., :channels]))
    for given in (file, str(file), file.read_bytes()):
        np.testing.assert_array_equal(read_image(given, channels).numpy(), PIXELS[..., :channels])


@pytest.mark.needs("package:PIL")
def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no picture"):
        read_image(b"not a picture")
    with pytest.raises(ShapeError, match="no pixels"):
        write_image(tmp_path / "x.png", Tensor([1.0]))
    with pytest.raises(ShapeError, match="channels"):
        read_image(b"", channels=2)


@pytest.mark.needs("package:soundfile")
def test_a_sound_is_read_as_it_was_written(tmp_path: Path) -> None:
    samples = np.sin(np.arange(400).reshape(2, 200) / 9).astype(np.float32)
    write_audio(tmp_path / "sound.flac", Tensor(samples), 8000)
    found, rate = read_audio(tmp_path / "sound.flac")
    assert rate == 8000
    np.testing.assert_allclose(found.numpy(), samples, atol=1e-4)


@pytest.mark.needs("package:soundfile")
def test_what_is_no_sound_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no sound"):
        read_audio(b"not a sound")
    with pytest.raises(ShapeError, match="no samples"):
        write_audio(tmp_path / "x.wav", Tensor([1]), 8000)


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(UnsupportedError, match="soundfile is not installed"):
        read_audio(b"")
