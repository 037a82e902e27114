"""The command line: `_main` has the table of commands, and each command is one dataclass."""
