"""The short version of ``benchmarks/reliability.py``: a few of every fault, with the same counts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import interruptions  # noqa: E402
import reliability  # noqa: E402


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("campaign")
        patch.chdir(folder)
        reliability.make(folder)
        yield folder


def bad(counts: list[interruptions.Count]) -> list[str]:
    return [line for count in counts for line in count.first]


def test_broken_files_are_refused_or_harmless(place):
    counts = reliability.mutants(120, seed=1)
    assert sum(count.tried for count in counts) == 120
    assert bad(counts) == []


def test_no_folder_has_its_code_run(place):
    count = reliability.hostile()
    assert count.tried > 20
    assert bad([count]) == []


def test_a_killed_command_gives_the_same_when_it_is_repeated(place):
    counts = interruptions.kills(2, seed=1, only="select")
    assert sum(count.as_it_must for count in counts) == 2, bad(counts)


def test_a_full_disk_ends_in_a_sentence(place):
    assert bad([interruptions.limited(2, "disk", seed=1)]) == []
