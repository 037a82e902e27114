"""``BadInput``, the exception for input that a user can fix, and one-sentence messages for other errors."""

from errno import ENOMEM
from traceback import extract_tb


class BadInput(ValueError):
    """Input that cannot be used.

    The message is one sentence: it names the file, subject or parameter, what was found, and what to do. The command
    line prints it, adds the option of ``parameter``, and exits with code 2.

    Parameters
    ----------
    message : str
    parameter : str
        The parameter to change, if there is one. The command line shows ``n_splits`` as ``--splits``.

    Examples
    --------
    >>> from bnt.errors import BadInput
    >>> error = BadInput("n_splits is 0: ask for at least 1.", parameter="n_splits")
    >>> error.parameter
    'n_splits'
    """

    def __init__(self, message: str, parameter: str = "") -> None:
        super().__init__(message)
        self.parameter = parameter


_NO_MEMORY = ("allocate memory", "enough memory", "out of memory", "failed to map segment", "bad_alloc", "new thread")


def lacks_memory(error: BaseException) -> bool:
    """Whether an error, or one that caused it, says that there is not enough memory, in the words of any library."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError) or getattr(seen, "errno", None) == ENOMEM:
            return True
        if isinstance(seen, RuntimeError | ImportError | OSError | ValueError | SystemError):
            text = str(seen).lower()
            if any(words in text for words in _NO_MEMORY):
                return True
        seen = seen.__cause__
    return False


def in_one_line(error: BaseException, besides: str = "") -> str:
    """Return an error with its kind, and with the line of the last file that is no library's.

    Parameters
    ----------
    error : exception
        As it was caught.
    besides : str
        Another file to pass over: the one that called what failed.
    """
    text = " ".join(str(error).split()) or "no message"
    frames = [f for f in extract_tb(error.__traceback__) if "site-packages" not in f.filename and f.filename != besides]
    frames = [f for f in frames if not f.filename.startswith("<frozen")]
    where = f" (line {frames[-1].lineno} of {frames[-1].filename})" if frames else ""
    return f"{type(error).__name__}: {text}{where}"
