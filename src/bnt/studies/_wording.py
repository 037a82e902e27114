"""Numbers in words, one way for the terminal, the report and the paper's tables: times and p-values."""

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


def p_value(p: float) -> str:
    """Return ``0.012``, or ``< 0.001``: no p is 0. Empty where there is none.

    Examples
    --------
    >>> p_value(0.0123), p_value(1e-9), p_value(float("nan"))
    ('0.012', '< 0.001', '')
    """
    if not isfinite(p):
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def p_words(p: float) -> str:
    """Return ``p = 0.012``, or ``p < 0.001``."""
    shown = p_value(p)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"
