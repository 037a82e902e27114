"""The paper's tables, figures and theorems as studies."""

from bnt.paper._reproduce import PARTS, reproduce

__all__ = ["PARTS", "reproduce"]
