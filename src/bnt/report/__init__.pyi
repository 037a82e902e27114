__all__ = [
    "watch_report",
    "write_report",
]

from ._build import watch_report, write_report
