"""Text for people: progress on standard error; format of metrics, times and p-values, for terminal and reports.

Files keep shares of 1. The Brier score is a squared error, and stays as it is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from math import isfinite
from typing import TypeVar

Item = TypeVar("Item")

SECONDS_BETWEEN_LINES = 5.0
NAMES = {
    "auroc": "AUROC",
    "auroc_within_site": "AUROC within sites",
    "brier": "Brier score",
    "mse": "MSE",
    "mae": "MAE",
    "medae": "median absolute error",
    "r2": "R²",
    "spearman": "Spearman's rho",
}
SHARES = (
    "auroc",
    "auroc_within_site",
    "accuracy",
    "sensitivity",
    "specificity",
    "balanced_accuracy",
    "calibration_error",
)


def say(text: str) -> None:
    """Print one line for the person watching, on standard error."""
    print(text, file=sys.stderr, flush=True)


def track(items: Iterable[Item], label: str, total: int | None = None) -> Iterator[Item]:
    """Yield ``items`` and show how far it is and how long it will take."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track as bar

        yield from bar(items, label, total=total, console=Console(stderr=True), transient=True)
        return
    last = first = time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        if done == 1:
            first = now  # what came before it also started processes: no measure of the items to come
        if done and now - last >= SECONDS_BETWEEN_LINES:
            last = now
            left = f", about {duration((now - first) / (done - 1) * (total - done))} left" if total and done > 1 else ""
            say(f"{label}: {done} of {total or 'unknown'}{left}")
        yield item


def stage_name(stage: str) -> str:
    """Return a stage of training in words, for people who watch it.

    Examples
    --------
    >>> stage_name("member0-selected"), stage_name("member1-refit")
    ('Network 1', 'Network 2, refitted')
    """
    member, _, what = stage.partition("-")
    return f"Network {int(member.removeprefix('member')) + 1}{', refitted' if what == 'refit' else ''}"


def shown_name(metric: str) -> str:
    """Return a metric's name as figures and tables show it."""
    return NAMES.get(metric, metric.replace("_", " "))


def is_share(metric: str) -> bool:
    """Whether a metric, or what :func:`shown_name` calls it, is a share of 1."""
    return metric in SHARES or metric in map(shown_name, SHARES)


def heading(metric: str) -> str:
    """Return a metric's name with its unit, for columns and axes.

    Examples
    --------
    >>> heading("auroc"), heading("mae")
    ('AUROC (%)', 'MAE')
    """
    return shown_name(metric) + (" (%)" if is_share(metric) else "")


def shown(value: float, metric: str, sign: str = "", nothing: str = "", like: float | None = None) -> str:
    """Return a value of a metric without its unit; ``sign`` is ``+`` for differences, decimals are those of ``like``.

    Examples
    --------
    >>> shown(0.7534, "auroc"), shown(-0.012, "auroc", "+"), shown(0.2134, "brier")
    ('75.3', '-1.2', '0.213')
    """
    if not isfinite(value):
        return nothing
    size = abs(value if like is None else like)
    scale, digits = (100, 1) if is_share(metric) else (1, 3 if size < 1 else 2 if size < 100 else 1)
    return f"{scale * value:{sign}z.{digits}f}"


def spoken(value: float, metric: str) -> str:
    """Return a value with its unit, for sentences: ``75.3 %``."""
    return shown(value, metric) + (" %" if is_share(metric) else "")


def spoken_interval(low: float, high: float, metric: str, sign: str = "") -> str:
    """Return ``95 % interval 70.1 to 80.4``, in the unit of the value before it; empty where there is none."""
    if not (isfinite(low) and isfinite(high)):
        return ""
    return f"95 % interval {shown(low, metric, sign)} to {shown(high, metric, sign)}"


def span(low: float, high: float, metric: str) -> str:
    """Return ``70.1 to 80.4``, for tables; empty where there is none."""
    return f"{shown(low, metric)} to {shown(high, metric)}" if isfinite(low) and isfinite(high) else ""


def duration(seconds: float) -> str:
    """Return a length of time in words: seconds, minutes or hours.

    Examples
    --------
    >>> duration(75), duration(600), duration(9000)
    ('75 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def p_value(p: float, nothing: str = "") -> str:
    """Return ``0.012``, or ``< 0.001``: no p is 0; ``nothing`` where there is none.

    Examples
    --------
    >>> p_value(0.0123), p_value(1e-9), p_value(float("nan"), "–")
    ('0.012', '< 0.001', '–')
    """
    if not isfinite(p):
        return nothing
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def p_words(p: float) -> str:
    """Return ``p = 0.012``, or ``p < 0.001``."""
    shown = p_value(p)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def percent(share: float, digits: int = 0) -> str:
    """Return a share as a percentage.

    Examples
    --------
    >>> percent(0.5), percent(0.1234, 1)
    ('50 %', '12.3 %')
    """
    return f"{100 * share:.{digits}f} %"


def counted(n: int, what: str) -> str:
    """Return a number of things, with an s where they are not one.

    Examples
    --------
    >>> counted(1, "split"), counted(1009, "subject")
    ('1 split', '1,009 subjects')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"
