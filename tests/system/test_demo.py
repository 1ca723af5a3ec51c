"""The demonstration as users run it, and its training beside PyTorch's."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilework.tools.demo import digits, learn

pytestmark = pytest.mark.slow
SEEDS = range(5)
LEAST = 0.98


def test_the_demo_reads_the_page_and_learns_the_digits(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tilework.tools.demo", "--output", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "demo.json").read_text())
    text = " ".join(report["read"]["lines"])
    assert "Region-based segmentation" in text
    assert "Let us first determine markers of the coins and the" in text
    assert report["read"]["agreement"]["same_class"] > 0.999
    assert report["train"]["accuracies"][-1] >= LEAST
    assert report["train"]["seconds"] < 120
    assert (tmp_path / "out" / "training_digits.png").stat().st_size > 10_000


def train_with_torch(data: digits.Digits, recipe: learn.Recipe) -> float:
    """The same network, start, batches and optimizer in PyTorch; the accuracy at the end."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)  # the net is small; threads only wait for each other
    start = learn.initial_weights(recipe, data.size)
    w = {name: torch.tensor(array, requires_grad=True) for name, array in start.items()}

    def network(x: torch.Tensor) -> torch.Tensor:
        x = functional.conv2d(x, w["first.weight"], w["first.bias"], padding=1).relu()
        x = functional.conv2d(x, w["second.weight"], w["second.bias"], padding=1).relu()
        x = functional.max_pool2d(x, 2).flatten(1)
        return functional.linear(x, w["last.weight"], w["last.bias"])

    optimizer = torch.optim.Adam(list(w.values()), lr=recipe.learning_rate)
    pictures, classes = torch.tensor(data.train_pictures), torch.tensor(data.train_classes)
    for epoch in range(recipe.epochs):
        for places in learn.batches(recipe, len(pictures), epoch):
            optimizer.zero_grad()
            loss: Any = functional.cross_entropy(network(pictures[places]), classes[places])
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        best = network(torch.tensor(data.test_pictures)).argmax(1)
    return float((best == torch.tensor(data.test_classes)).float().mean())


def test_training_reaches_the_accuracy_of_pytorch_over_five_seeds(tmp_path: Path) -> None:
    data = digits.load("digits", tmp_path)
    ours, theirs = [], []
    for seed in SEEDS:
        recipe = learn.Recipe(seed=seed)
        ours.append(learn.train(data, recipe)[1].accuracies[-1])
        theirs.append(train_with_torch(data, recipe))
    # One picture is 0.28 %; the spread over seeds is about two pictures.
    assert np.mean(ours) >= LEAST
    assert abs(np.mean(ours) - np.mean(theirs)) < 0.006
