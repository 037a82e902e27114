"""The short version of ``benchmarks/reliability.py``: a few of every fault, with the same counts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import interruptions  # noqa: E402
import long_runs  # noqa: E402
import reliability  # noqa: E402
from fault_targets import make  # noqa: E402
from mutants import Count, Table  # noqa: E402


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("campaign")
        patch.setenv("BNT_STATE", str(folder / "state"))
        patch.chdir(folder)
        make(folder, everything=False)
        yield folder


def bad(counts: list[Count]) -> list[str]:
    return [line for count in counts for line in count.first]


@pytest.mark.usefixtures("undrawn")
def test_broken_files_are_refused_or_read_for_what_they_hold(place):
    table = Table(place / "mutants.csv")
    reliability.mutants(table, 60, seed=7)
    assert sum(count.tried for count in table.counts.values()) > 55
    assert len(table.counts) == len(reliability.targets())
    assert bad(list(table.counts.values())) == []
    assert sum(count.refused for count in table.counts.values()) > 25
    assert {name: count.tried for name, count in Table(place / "mutants.csv").counts.items()} == {
        name: count.tried for name, count in table.counts.items()
    }


@pytest.mark.usefixtures("undrawn")
def test_no_folder_has_its_code_run(place):
    count = Count("hostile folders")
    reliability.hostile(count, places=1)
    assert count.tried > 15
    assert bad([count]) == []


@pytest.mark.parametrize("name", ["select", "train linear"])
def test_a_killed_command_gives_the_same_when_it_is_repeated(place, name):
    rows = interruptions.kills(place / f"{name}.csv", 2, seed=1, only=name, real_every=99)
    assert [row["outcome"] for row in rows] == ["identical"] * 2


def test_a_full_disk_ends_in_a_sentence(place):
    table = interruptions.limits(place / "limits.csv", 1, seed=1, only="select", kinds=("little disk",))
    assert bad(list(table.counts.values())) == []
    assert sum(count.tried for count in table.counts.values()) == 1


@pytest.mark.usefixtures("undrawn")
def test_commands_in_one_process_leave_no_files_or_threads_behind(place):
    rows = long_runs.growth(place / "growth.csv", cycles=2, workers=False)
    for name in ("open_files", "threads", "temporary_files"):
        assert rows[-1][name] <= rows[0][name], name
    assert os.getcwd() == str(place)
