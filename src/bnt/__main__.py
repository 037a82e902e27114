"""Entry point of ``python -m bnt``. Before a command runs there is nothing to clean up, so a signal ends it at once."""

import os
import signal


def _leave(number: int, _: object) -> None:
    os.write(2, b"bnt: interrupted before it had begun.\n")
    os._exit(128 + number)


def start() -> None:
    """Run the command of this process; a signal while the command is imported is a sentence too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _leave)
    from bnt.cli._main import entry_point

    entry_point()


if __name__ == "__main__":
    start()
