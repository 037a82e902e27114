__all__ = [
    "Plan",
    "PARTS",
    "reproduce",
]

from ._plan import Plan
from ._reproduce import PARTS, reproduce
