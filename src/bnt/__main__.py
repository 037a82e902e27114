"""``python -m bnt`` is ``bnt``."""

from bnt.cli._main import entry_point

entry_point()
