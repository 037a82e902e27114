__all__ = ["watch_report", "write_report", "write_validation"]

from ._pages import watch_report, write_report
from ._tested import write_validation
