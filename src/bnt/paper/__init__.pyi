__all__ = [
    "PARTS",
    "reproduce",
]

from ._reproduce import PARTS, reproduce
