__all__ = ["Plan", "PARTS", "reproduce"]

from ._plan import PARTS, Plan, reproduce
