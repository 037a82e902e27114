"""Numbers in words, one way for the terminal, the report and the paper's tables: times, p-values, percentages."""

from __future__ import annotations

from math import isfinite


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
