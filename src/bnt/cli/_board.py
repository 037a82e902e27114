"""What commands show on a terminal: tables, and the progress of training and of studies."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from bnt._progress import SECONDS_BETWEEN_LINES, say


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print rows as a table, numbers to the right; columns are the keys in order of appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_shown(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(c), *(len(line[i]) for line in cells)) for i, c in enumerate(columns)]
    right = [all(isinstance(row.get(c), int | float | None) for row in rows) for c in columns]
    for line in [columns, *cells]:
        parts = [v.rjust(w) if r else v.ljust(w) for v, w, r in zip(line, widths, right)]
        print("  ".join(parts).rstrip())


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else str(value)


class EpochLine:
    """A watcher for the training loop: epoch, loss, validation score, time left."""

    def __init__(self) -> None:
        self._stage = ""
        self._bar: Any = None
        self._task: Any = None
        self._started = time.monotonic()

    def __enter__(self) -> EpochLine:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
            self._bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, stage: str, line: dict[str, Any]) -> None:
        """Show one epoch."""
        if stage != self._stage:
            self._stage, self._started = stage, time.monotonic() - line["seconds"]
            if self._bar is not None:
                self._task = self._bar.add_task(stage, total=line["of"], note="")
        score = line["val_score"]
        note = f"loss {line['loss']:.4f}" + (f", validation {score:.4f}" if score is not None else "")
        if self._bar is not None:
            self._bar.update(self._task, completed=line["epoch"], note=note)
            return
        left = (time.monotonic() - self._started) / line["epoch"] * (line["of"] - line["epoch"])
        say(f"{stage}: epoch {line['epoch']} of {line['of']}, {note}, {left:.0f} s left")


class Board:
    """A watcher for a study's engine: running jobs with their newest epoch, totals, time left."""

    def __init__(self) -> None:
        self._started = self._last = time.monotonic()
        self._earlier: int | None = None
        self._done = 0
        self._live: Any = None

    def __enter__(self) -> Board:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), transient=True, refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, running: Sequence[Any], done: int, total: int, failures: dict[str, str]) -> None:
        """Show how the study stands."""
        from bnt.studies._engine import last_line
        from bnt.studies._wording import duration

        now = time.monotonic()
        if self._earlier is None or done < self._done:  # a new list of runs; what was done before it has no speed
            self._earlier, self._started = done, now
        self._done = done
        here = done - self._earlier
        head = f"{done} of {total} runs done"
        head += f" ({self._earlier} earlier)" if self._earlier else ""
        head += f", {len(failures)} failed" if failures else ""
        if here and done < total:
            head += f", about {duration((now - self._started) / here * (total - done))} left"
        lines = [head]
        for job in running:
            line = last_line(job)
            note = f"draw {line['draw']} of {job.draws}" if "draw" in line else ""
            if line and not note:
                score = line.get("val_score")
                note = f"epoch {line['epoch']}, loss {line['loss']:.4f}"
                note += f", validation {score:.4f}" if score is not None else ""
            lines.append(f"  {job.name}: {note or 'starting'}")
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text("\n".join(lines)))
        elif (done == total and here) or now - self._last >= 4 * SECONDS_BETWEEN_LINES:
            self._last = now
            say("; ".join(line.strip() for line in lines))
