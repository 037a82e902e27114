"""The line that shows training: a bar on a terminal, a plain line an epoch elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from bnt.progress import say


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
