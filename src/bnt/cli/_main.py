"""The ``bnt`` command: imports only the module of the command in use, and turns errors into one sentence."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from difflib import get_close_matches
from importlib import import_module
from inspect import getdoc
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bnt.errors import BadInput


class Command(NamedTuple):
    """One row of the table of commands."""

    options: str
    """Module and class: a dataclass of options, whose docstring is the help and whose ``run`` does the work."""
    summary: str
    """The line of ``bnt --help``."""
    example: str
    """A line to type, in the help and in the documentation, which runs it."""
    interrupted: str = "no partial file is left"
    """What to say after Ctrl-C."""


_REPEAT = "repeat the command to resume"
# To add a command, write its dataclass with `run` and add one row. `bnt --help` reads this table and imports no
# command; `run` imports what is slow itself, so that the help of a command is fast too.
COMMANDS = {
    "simulate": Command(
        "_data_commands.Simulate",
        "make a multi-site cohort with planted modules, site shifts and a known class effect",
        "bnt simulate cohort --subjects 200 --rois 30 --sites 4",
    ),
    "fetch": Command(
        "_data_commands.Fetch",
        "make a cohort from a public data set (ABIDE), through nilearn",
        "bnt fetch abide abide --data-dir nilearn_data",
    ),
    "import": Command(
        "_data_commands.Import",
        "make a cohort from fMRIPrep, XCP-D or C-PAC derivatives, CIFTI files or tables",
        "bnt import bids/derivatives/xcp_d imported --runs sessions",
    ),
    "info": Command(
        "_data_commands.Info",
        "check a cohort before training: classes, sites, motion, duplicates",
        "bnt info cohort --label diagnosis",
    ),
    "select": Command(
        "_data_commands.Select",
        "make a cohort of some subjects of another",
        'bnt select cohort still --where "mean_fd < 0.2"',
    ),
    "split": Command(
        "_training_commands.Split",
        "make, check and save splits as a table of subjects",
        "bnt split cohort --n-splits 5 --out splits.csv",
    ),
    "audit": Command(
        "_training_commands.Audit",
        "check anybody's splits and predictions for leaks and selection",
        "bnt audit splits.csv cohort",
    ),
    "train": Command(
        "_training_commands.Train",
        "train one model, select on validation, test once",
        "bnt train cohort --model ridge --out run",
        "repeat the command with --resume to continue from the last finished epoch",
    ),
    "compare": Command(
        "_study_commands.Compare",
        "compare models on the same splits, with statistics",
        "bnt compare cohort --models ridge svm --splits 5 --out study",
        _REPEAT,
    ),
    "learning-curve": Command(
        "_training_commands.LearningCurve",
        "score against sample size, and the sample that a target needs",
        "bnt learning-curve cohort --model ridge --fractions 0.25 0.5 0.75 1 --splits 2 --aim 0.8 --out curve",
        _REPEAT,
    ),
    "tune": Command(
        "_study_commands.Tune",
        "search a model's settings inside the training set",
        "bnt tune cohort --model svm --out tuned",
        _REPEAT,
    ),
    "reproduce": Command(
        "_model_commands.Reproduce",
        "make a table or figure of the paper, the printed numbers beside ours",
        "bnt reproduce parameters cohort --out parameters",
        f"{_REPEAT} (what trains nothing starts again)",
    ),
    "predict": Command(
        "_result_commands.Predict",
        "predict new subjects with a finished run",
        "bnt predict run elsewhere --out predictions.csv",
    ),
    "validate": Command(
        "_result_commands.Validate",
        "score a run on people from elsewhere: AUROC, calibration, subgroups",
        "bnt validate run elsewhere --allow-same-ids --out validation",
    ),
    "explain": Command(
        "_result_commands.Explain",
        "explain a run: attention by network, cluster assignments, edge attributions",
        "bnt explain run cohort --out run/explain",
    ),
    "report": Command(
        "_result_commands.Report", "write one self-contained HTML page about a run or a study", "bnt report study"
    ),
    "export": Command(
        "_sharing_commands.Export",
        "write a model to share: safetensors, JSON and card; also to a hub",
        "bnt export run model --license mit",
    ),
    "bids-app": Command(
        "_sharing_commands.BidsApp",
        "run as a BIDS App: bids_dir output_dir participant|group",
        "bnt bids-app bids out participant --participant_label 001",
        _REPEAT,
    ),
    "models": Command("_model_commands.Models", "list models, or show the options of one", "bnt models vanilla"),
    "theory": Command("_model_commands.Theory", "check the paper's theorems", "bnt theory"),
    "bench": Command(
        "_model_commands.Bench",
        "measure speed and memory here: data, connectivity, train, models, study",
        "bnt bench connectivity",
    ),
}

LEAST_MEMORY = 3 * 2**29  # bytes of address space
_HELP_FOOT = """
Each command has its own --help. Start with:
  bnt simulate cohort
  bnt train cohort --model bnt --out run
"""


def _overview() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())
    return f"usage: bnt COMMAND ...\n\nBrain networks to predictions.\n\n{rows}\n{_HELP_FOOT}"


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code.

    0 for success, 1 for a failure, 2 for bad input or where memory or disk is full, 130 after Ctrl-C and 143 after
    SIGTERM.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        from bnt import __version__

        print(__version__)
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f": choose one of {', '.join(COMMANDS)}."
        _say(f"bnt: unknown command {name!r}{hint}")
        return 2
    return run_command(name, rest)


def _say(sentence: str) -> None:
    """Print the sentence that ends a command; where it cannot be written, the exit code alone says it."""
    try:
        print(sentence, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _sentence(message: Warning | str, *_: object, **__: object) -> str:
    """Return a warning as a line for a person, without the source code that caused it."""
    return f"warning: {message}\n"


def with_flag(error: BadInput, options: type) -> str:
    """Return an error's sentence, and in brackets the option of the parameter that it is about.

    ``n_splits`` of the library is ``--splits`` here; a parameter that the command does not have is left out.
    """
    from bnt.cli._parsing import flags

    known = flags(options)
    words = (error.parameter, error.parameter.removeprefix("n_"))
    flag = next((f"--{word}" for word in (w.replace("_", "-") for w in words) if word in known), "")
    sentence = str(error)
    if not flag or flag in sentence:
        return sentence
    return f"{sentence.rstrip('.')} ({flag})."


def find_command(name: str) -> type:
    """Import and return the options of a command."""
    module, _, options = COMMANDS[name].options.partition(".")
    return getattr(import_module(f"bnt.cli.{module}"), options)


def run_command(name: str, rest: list[str]) -> int:
    """Parse the options of one command into its dataclass and run it."""
    options: type | None = None
    try:
        from bnt.cli._parsing import parse, remember

        _refuse_small_memory()
        remember([name, *rest])
        warnings.formatwarning = _sentence
        options = find_command(name)
        help_text = f"{getdoc(options)}\n\nFor example: {COMMANDS[name].example}"
        return int(parse(options, name, help_text, rest).run() or 0)
    except SystemExit as end:  # --help
        return int(end.code or 0) if isinstance(end.code, int | None) else 2
    except BrokenPipeError:  # the reader of a pipe, such as head, has gone
        sys.stderr.close()
        return 0
    except (Exception, KeyboardInterrupt) as error:
        code, sentence = _ending(name, error, options)
        if not sentence:
            raise
        _say(f"bnt {name}: {' '.join(sentence.split())}")  # libraries' own words may have line ends
        return code


def _refuse_small_memory() -> None:
    """Refuse a limit in which OpenBLAS ends the process, or waits for ever, while it is loaded."""
    from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit

    from bnt.errors import BadInput

    allowed = getrlimit(RLIMIT_AS)[0]
    if allowed not in (RLIM_INFINITY, -1) and allowed < LEAST_MEMORY:
        raise BadInput(
            f"this shell allows {allowed / 2**30:.1f} GB of address space (ulimit -v), and the libraries need "
            f"{LEAST_MEMORY / 2**30:.1f} GB: raise it."
        )


def _ending(name: str, error: BaseException, options: type | None) -> tuple[int, str]:
    """Return the exit code and the sentence of what ended a command; no sentence for a fault of the program itself."""
    from bnt.errors import BadInput, lacks_memory

    if isinstance(error, KeyboardInterrupt) or _received:  # libraries turn an interrupt into errors of their own
        number = _received[-1] if _received else signal.SIGINT
        word = "ended by a signal" if number == signal.SIGTERM else "interrupted"
        return 128 + number, f"{word}; {COMMANDS[name].interrupted}."
    if lacks_memory(error):
        return 2, f"there is not enough memory; {COMMANDS[name].interrupted}: close other programs, or use less data."
    if isinstance(error, BadInput):
        return 2, with_flag(error, options) if options is not None else str(error)
    if isinstance(error, OSError):
        what = f"{error.filename} cannot be read or written" if error.filename else "a file cannot be written"
        return 2, f"{what}: {error.strerror or error}; {COMMANDS[name].interrupted}."
    return 1, ""


# -- signals -----------------------------------------------------------------------------------------

_received: list[int] = []  # the signals that this process got


def _interrupt(number: int, _: object) -> None:
    _received.append(number)
    raise KeyboardInterrupt


def _raised_where_none_can(what: sys.UnraisableHookArgs) -> None:
    """Send a signal again that came while an object was deleted, where Python drops what is raised."""
    if not isinstance(what.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(what)
        return
    from threading import Timer

    again = Timer(0.05, os.kill, (os.getpid(), _received[-1] if _received else signal.SIGINT))
    again.daemon = True
    again.start()


def entry_point() -> None:
    """Exit with the code of :func:`main`; SIGTERM and Ctrl-C end a command after it has tidied up."""
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) != signal.SIG_IGN]
    sys.unraisablehook = _raised_where_none_can
    code = 0
    try:
        for number in numbers:
            signal.signal(number, _interrupt)
        code = main()
        sys.stdout.flush()
    except KeyboardInterrupt:  # while the sentence of another ending was printed
        code = 128 + (_received[-1] if _received else signal.SIGINT)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as error:
        _say(f"bnt: what it says cannot be written: {error.strerror}.")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 2
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)  # the command has ended: nothing is left to tidy up
    # An interrupt that passed through exec() of a text (a dataclass being made) leaves a mark in Python, for which
    # `python -m` ends by SIGINT whatever the code is, also where the interrupt was handled. Executing a text clears it.
    exec("")
    sys.exit(code)


if __name__ == "__main__":
    entry_point()
