"""The ``bnt`` command: finds the command's module, imports only that, and turns errors into sentences."""

from __future__ import annotations

import sys
import warnings
from difflib import get_close_matches
from importlib import import_module

COMMANDS = {
    "simulate": "make a multi-site cohort with planted modules, site shifts and a known class effect",
    "fetch": "make a cohort from a public data set (ABIDE), through nilearn",
    "import": "make a cohort from XCP-D or C-PAC derivatives, CIFTI files or tables",
    "info": "what a careful researcher wants to know about a cohort before training",
    "select": "make a cohort of some subjects of another",
    "split": "make, check and save splits as a table of subjects",
    "train": "one run: train, select on validation, test once",
    "compare": "a fair comparison of models on shared splits, with statistics",
    "tune": "search a model's settings inside the training part: the paper's grid, or freely",
    "reproduce": "a table or figure of the paper, the printed numbers beside ours",
    "predict": "probabilities for new subjects from a finished run",
    "explain": "what a run saw: attention by network, cluster assignments, edge attributions",
    "report": "one self-contained HTML page about a run or a study",
    "models": "the models there are",
    "theory": "the paper's theorems, checked",
    "bench": "how fast it is here: data, connectivity, train, models",
}

_GO_ON = {
    "train": "give the same command with --resume to go on from the last finished epoch",
    "compare": "give the same command again to go on",
    "tune": "give the same command again to go on",
    "reproduce": "give the same command again to go on",
}

_HELP_FOOT = """
Each command has its own --help. Start with:
  bnt simulate cohort
  bnt train cohort --model bnt --out run
"""


def _overview() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    return f"usage: bnt COMMAND ...\n\nBrain networks to predictions.\n\n{rows}\n{_HELP_FOOT}"


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 it failed, 2 bad input, 130 interrupted."""
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
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(COMMANDS)}."
        print(f"bnt: there is no command {name!r}{hint}", file=sys.stderr)
        return 2
    return run_command(name, rest)


def _sentence(message: Warning | str, *_: object, **__: object) -> str:
    """Return a warning as a line for a person, without the source code that caused it."""
    return f"warning: {message}\n"


def run_command(name: str, rest: list[str]) -> int:
    """Parse the options of one command into its dataclass and run it."""
    from bnt.cli._parsing import parse, remember
    from bnt.errors import BadInput

    remember([name, *rest])
    warnings.formatwarning = _sentence
    module = import_module(f"bnt.cli._{name}_command")
    try:
        return int(module.run(parse(module.Options, name, module.__doc__, rest)) or 0)
    except BadInput as error:
        print(f"bnt {name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"bnt {name}: interrupted; {_GO_ON.get(name, 'nothing half-written is left')}.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe, such as head, has gone
        sys.stderr.close()
        return 0
    except SystemExit as end:  # --help
        return int(end.code or 0) if isinstance(end.code, int | None) else 2


def entry_point() -> None:
    """Exit with the code of :func:`main`."""
    sys.exit(main())


if __name__ == "__main__":
    entry_point()
