"""What every command prints with: tables and progress, or one JSON document.

The results go to standard output; progress, warnings and errors go to standard error, so that
`--json` can be piped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tilework.base.errors import TileworkError

MESSAGE_LINES = 4


class Console:
    """Prints for people, or for machines if `is_json`."""

    def __init__(self, *, is_json: bool = False) -> None:
        # rich costs 60 ms to import, which `tilework --help` need not pay.
        from rich.console import Console as RichConsole

        self.is_json = is_json
        self._out = RichConsole(highlight=False, soft_wrap=True)
        self._err = RichConsole(stderr=True, highlight=False)

    def text(self, line: str = "") -> None:
        """Print a line, for people only."""
        if not self.is_json:
            self._out.print(line, markup=False)

    def title(self, line: str) -> None:
        """Print a line that stands out, for people only."""
        if not self.is_json:
            self._out.print(line, markup=False, style="bold")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table, for people only; columns of numbers align right, no rows print nothing."""
        if self.is_json or not rows:
            return
        from rich.table import Table

        table = Table(title=title, title_justify="left", title_style="bold")
        for index, column in enumerate(columns):
            is_text = any(isinstance(row[index], str) and row[index][:1].isalpha() for row in rows)
            table.add_column(column, justify="left" if is_text or not index else "right")
        for row in rows:
            table.add_row(*[_cell(value) for value in row])
        self._out.print(table)

    def result(self, document: Mapping[str, Any]) -> None:
        """Print the whole result as JSON, for machines only."""
        if self.is_json:
            print(json.dumps(document, indent=2, default=str))

    @contextmanager
    def progress(self, title: str, total: int | None = None) -> Iterator[Progress]:
        """Show a progress bar (without a total: a spinner) while the block runs."""
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.progress import Progress as RichProgress

        columns = [SpinnerColumn(), TextColumn("{task.description}")]
        bars = [BarColumn(), MofNCompleteColumn()] if total else []
        with RichProgress(
            *columns,
            *bars,
            TimeElapsedColumn(),
            console=self._err,
            transient=True,
            disable=not self._err.is_terminal,  # a log gets no blank lines
        ) as bar:
            yield Progress(bar, bar.add_task(title, total=total))


class Progress:
    """A running progress bar."""

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar = bar
        self._task = task

    def advance(self, steps: int = 1, text: str | None = None) -> None:
        """Move on, and show what is being done."""
        self._bar.update(
            self._task, advance=steps, **({} if text is None else {"description": text})
        )

    def describe(self, text: str) -> None:
        """Show what is being done."""
        self._bar.update(self._task, description=text)


def _cell(value: Any) -> Any:
    from rich.text import Text

    return Text("" if value is None else str(value))


def error_lines(error: TileworkError) -> list[str]:
    """Return an error as at most four lines: what is wrong, then what is known about it."""
    first, *details = str(error).splitlines()
    notes = [f"  {note}" for note in getattr(error, "__notes__", ())]
    lines = [f"error: {first}", *details, *notes]
    if len(lines) <= MESSAGE_LINES or "\n" in str(error.got):
        return lines
    # What to do next matters more than where it was created.
    wanted = [line for line in lines[1:] if not line.startswith("  created at")]
    return [lines[0], *wanted[: MESSAGE_LINES - 1]]


def print_error(error: TileworkError) -> None:
    """Print an error of our own tree on standard error."""
    for line in error_lines(error):
        print(line, file=sys.stderr)
