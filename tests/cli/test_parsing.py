"""Every mistake in the options is answered by one sentence that names it."""

from __future__ import annotations

import pytest

from bnt.cli._main import main

MISTAKES = {
    "train": "missing: COHORT, --out PATH",
    "train c": "missing: --out PATH",
    "train c d --out x": "not understood: d",
    "train c --out": "--out has no value",
    "train c -o x": "missing: --out PATH; not understood: -o, x",
    "train --modell bnt": "unknown option --modell; did you mean --model?",
    "train c --out x --engine local": "unknown option --engine; see --help.",
    "train c --out x --threads two": "--threads: a whole number is needed, not 'two'",
    "compare c --out x --engine cluster": "--engine must be one of 'local', 'ray'",
    "compare c --out x --seeds a b": "--seeds: these values are of the wrong kind: ['a', 'b']",
    "compare c --out x --models bnt --models svm": "--models is given 2 times; give it once, with all",
    "compare c --split_seed 1 --out x --split-seed=2": "--split-seed is given 2 times",
    "reproduce table9 c --out x": "what must be one of 'table1', 'table2', 'figure3a'",
    "fetch adhd x": "dataset must be one of 'abide', 'adhd200', 'development', not 'adhd'",
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_one_sentence(typed, capsys):
    command = typed.split()[0]
    assert main(typed.split()) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"bnt {command}: {MISTAKES[typed]}")
    assert err.count("\n") == 1


def test_help_is_shown_whatever_else_is_typed(capsys):
    assert main(["train", "--modell", "--help"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: bnt train")
    assert not err
