"""The one exception for input that a person can mend."""


class BadInput(ValueError):
    """What was given cannot be used.

    The message is one sentence that names the file or subject, says what was found
    and what to do. The command line prints it and exits with code 2.
    """
