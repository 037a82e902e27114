"""Writes the report of a run or a study, once or repeatedly while the study runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from bnt.cohort._files import holder, readable, write_atomic
from bnt.errors import BadInput
from bnt.report._render import render
from bnt.report._run_page import run_page
from bnt.report._study_page import planned_runs, study_page
from bnt.studies._results import read_study

LARGEST = 15_000_000  # bytes of a page


def write_report(
    folder: str | Path, out: str | Path | None = None, *, refresh: int = 0, with_ids: bool = False
) -> Path:
    """Write ``report.html`` into the folder of a run or a study, or to ``out``; return its path.

    Parameters
    ----------
    folder : path
        A folder made by ``bnt train`` or ``bnt compare``.
    out : path, optional
        The file to write.
    refresh : int
        Seconds after which a browser reloads the report of an unfinished study; 0 is never. With 0, an unfinished study
        needs at least one finished run.
    with_ids : bool
        Also write the ids of subjects (the table of splits) and full paths. Without them the report can be shared.

    Examples
    --------
    >>> from bnt.report import write_report
    >>> write_report("study").name
    'report.html'
    """
    folder = Path(folder)
    target = Path(out) if out is not None else folder / "report.html"
    with readable(folder, "repeat the command that made it"):
        if (folder / "study.json").is_file():
            text = render("study.html", **study_page(folder, refresh, with_ids))
        elif (folder / "config.toml").is_file():
            text = render("run.html", **run_page(folder, with_ids))
        else:
            raise BadInput(f"{folder} is neither a run nor a study: give a folder made by bnt train or bnt compare.")
    if len(text.encode()) > LARGEST:
        raise BadInput(f"The page of {folder} would be {len(text) / 1e6:.0f} MB: remove pictures from explain/.")
    try:
        write_atomic(target, text)
    except OSError as error:
        raise BadInput(f"{target} cannot be written: {error.strerror}.") from error
    return target


def state(folder: Path) -> tuple[int, int, int]:
    """Return how many runs of a study are finished, how many are planned, and how many bytes of epochs there are."""
    planned = planned_runs(read_study(folder))
    done = sum((folder / "runs" / run / "DONE").is_file() for _, _, run in planned)
    lines = [folder / "runs" / run / "metrics.jsonl" for _, _, run in planned]
    return done, len(planned), sum(file.stat().st_size for file in lines if file.is_file())


def watch_report(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    every: float = 10.0,
    say: Callable[[str], None] = print,
    with_ids: bool = False,
) -> Path:
    """Update the report of a study until all its runs are finished or its command has ended; return its path.

    Parameters
    ----------
    folder : path
        The folder of a study, which may not have started yet.
    out : path, optional
        The file to write.
    every : float
        Seconds between two checks; the report is written again only if something has changed.
    say : callable
        Called with a line whenever a run has finished.
    with_ids : bool
        As in :func:`write_report`.

    Examples
    --------
    >>> from bnt.report import watch_report
    >>> watch_report("study", every=1, say=lambda line: None).name  # returns when the study is finished
    'report.html'
    """
    folder = Path(folder)
    if (folder / "config.toml").is_file() and not (folder / "study.json").is_file():
        raise BadInput(f"{folder} is one run: only a study can be watched.", "watch")
    if every <= 0:
        raise BadInput(f"every is {every:g}: give a number of seconds above 0.", "every")
    last: tuple[int, int, int] | None = None
    waited = seen = False
    while True:
        if not (folder / "study.json").is_file():
            if not waited:
                say(f"{folder} has no study yet: waiting for it.")
            waited = True
            time.sleep(every)
            continue
        running = bool(holder(folder / ".lock"))  # read before the runs: what ends in between is seen at the next look
        now = state(folder)
        if now != last:
            target = write_report(folder, out, refresh=max(5, round(every)), with_ids=with_ids)
            if last is None or now[0] != last[0]:
                say(f"{now[0]} of {now[1]} runs finished: {target}")
            last = now
        if now[0] == now[1]:
            return target
        if seen and not running:
            say(f"The study has ended with {now[0]} of {now[1]} runs finished; run its command again to resume.")
            return write_report(folder, out, with_ids=with_ids) if now[0] else target
        seen = seen or running
        time.sleep(every)
