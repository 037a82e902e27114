"""The command line: `_main` has the table of commands, and one dataclass per command does the work."""
