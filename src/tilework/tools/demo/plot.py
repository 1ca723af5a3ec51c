"""A picture of how loss and accuracy went."""

from __future__ import annotations

import importlib
from pathlib import Path

from tilework.base.errors import UnsupportedError
from tilework.tools.demo.learn import History


def save_plot(history: History, title: str, path: Path) -> None:
    """Draw loss and test accuracy over the epochs into a PNG file.

    Raises:
        UnsupportedError: the package `matplotlib` is missing.
    """
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        plots = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise UnsupportedError(
            "demo: the plot needs the package `matplotlib`",
            got=str(error),
            try_="pip install 'tilework[viz]'",
        ) from error
    epochs = range(1, len(history.losses) + 1)
    figure, loss_axes = plots.subplots(figsize=(8, 4.5), dpi=120)
    loss_axes.plot(epochs, history.losses, color="tab:red", marker=".", label="training loss")
    loss_axes.set_xlabel("epoch")
    loss_axes.set_ylabel("cross-entropy", color="tab:red")
    loss_axes.set_yscale("log")
    loss_axes.grid(True, alpha=0.3)
    accuracy_axes = loss_axes.twinx()
    percent = [100 * value for value in history.accuracies]
    accuracy_axes.plot(epochs, percent, color="tab:blue", marker=".", label="test accuracy")
    accuracy_axes.set_ylabel("test accuracy, %", color="tab:blue")
    accuracy_axes.set_ylim(min(90.0, min(percent)) - 1, 100.5)
    lines = [*loss_axes.get_lines(), *accuracy_axes.get_lines()]
    loss_axes.legend(lines, [line.get_label() for line in lines], loc="center right")
    loss_axes.set_title(f"{title}: {percent[-1]:.2f} % after {len(percent)} epochs")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plots.close(figure)
