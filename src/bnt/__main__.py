"""``python -m bnt`` is ``bnt``."""

from bnt.cli.main import entry_point

entry_point()
