"""Arrays kept beside a cohort: computed once, known by content, bounded, and never needed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

import bnt
from bnt.cli._main import main
from bnt.cohort import _beside
from bnt.cohort._beside import SeriesCache, cache_size
from bnt.errors import BadInput

GB, V = 10**9, 14


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BNT_STATE", str(tmp_path / "state"))
    bnt.simulate_cohort(n_subjects=12, n_rois=V, n_sites=2, seed=0).save(tmp_path / "cohort")
    return tmp_path / "cohort"


class Means:
    """Each subject's mean series, counting how often it is asked for."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, series) -> np.ndarray:
        self.calls += 1
        return np.stack([one.mean(0) for one in series])


def kept(folder: Path, make, most: int = GB, name: str = "mean", made_with: str = "1"):
    return SeriesCache(bnt.load_cohort(folder), most).array(name, made_with, V, make)


def test_rows_are_computed_once_and_are_those_of_the_series(folder):
    make = Means()
    first, before = kept(folder, make)
    again, cost = kept(folder, make)
    assert make.calls == 1
    assert isinstance(again, np.memmap)
    assert before == 0.0
    assert cost >= 0.0
    cohort = bnt.load_cohort(folder)
    np.testing.assert_array_equal(again, [one.mean(0) for one in cohort.timeseries])
    np.testing.assert_array_equal(again, first)
    assert sorted(f.suffix for f in (folder / "cache").iterdir()) == [".json", ".npy"]


def test_positions_of_selected_series_are_found_and_those_of_other_cohorts_are_not(folder):
    cohort = bnt.load_cohort(folder)
    cache = SeriesCache(cohort, GB)
    assert cache.rows_of(cohort.select([7, 2, 2]).timeseries).tolist() == [7, 2, 2]
    assert cache.rows_of(bnt.load_cohort(folder).timeseries) is None
    assert cache.rows_of([np.zeros((9, V))]) is None


def test_other_series_and_other_settings_have_files_of_their_own(folder):
    kept(folder, Means())
    kept(folder, Means(), made_with="2")
    cohort = bnt.load_cohort(folder)
    changed = [np.array(one) for one in cohort.timeseries]
    changed[3][0, 0] += 1.0
    bnt.Cohort(cohort.connectomes, cohort.participants, timeseries=changed).save(folder.parent / "other")
    (folder.parent / "other" / "cache").symlink_to(folder / "cache")
    make = Means()
    array, _ = kept(folder.parent / "other", make)
    assert make.calls == 1
    np.testing.assert_array_equal(array[3], changed[3].mean(0))
    assert cache_size(folder)[0] == 3


@pytest.mark.parametrize(
    "damage", ["deleted", "cut", "rewritten", "a flipped bit", "no facts", "deep facts", "a pickle"]
)
def test_what_is_not_as_it_was_written_is_made_again(folder, damage):
    expected = np.array(kept(folder, Means())[0])
    (array,) = (folder / "cache").glob("*.npy")
    if damage == "deleted":
        array.unlink()
    elif damage == "cut":
        array.write_bytes(array.read_bytes()[:-8])
    elif damage == "rewritten":
        array.write_bytes(array.read_bytes()[:-8] + b"12345678")
    elif damage == "a flipped bit":  # with the size and the time that it had
        time, data = array.stat().st_mtime_ns, bytearray(array.read_bytes())
        data[-6] ^= 1
        array.write_bytes(data)
        os.utime(array, ns=(time, time))
    elif damage == "deep facts":
        array.with_suffix(".json").write_text("[" * 100_000)
    elif damage == "no facts":
        array.with_suffix(".json").write_text("{}")
    else:
        np.save(array, np.array([{}], dtype=object), allow_pickle=True)
    make = Means()
    np.testing.assert_array_equal(kept(folder, make)[0], expected)
    assert make.calls == 1


def test_a_folder_that_cannot_be_written_leaves_the_state_folder_and_then_nothing(folder, tmp_path):
    (folder / "cache").write_text("not a folder")
    make = Means()
    assert kept(folder, make) is not None
    assert kept(folder, make) is not None
    assert make.calls == 1
    assert len(list((tmp_path / "state" / "cache").glob("*.npy"))) == 1
    for file in (tmp_path / "state" / "cache").iterdir():
        file.unlink()
    (tmp_path / "state" / "cache").rmdir()
    (tmp_path / "state" / "cache").write_text("nor this")
    assert kept(folder, make) is None


def test_a_full_disk_leaves_nothing(folder, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_beside, "sync_file", full)
    assert kept(folder, Means()) is None
    assert not list(folder.parent.rglob("cache/*"))


def test_a_subject_without_a_signal_is_left_to_whoever_asks_for_it(folder):
    def refuse(_):
        raise BadInput("Series 0 has no ROI that varies.")

    assert kept(folder, refuse) is None
    assert not list((folder / "cache").iterdir())


def test_the_bound_removes_what_other_versions_left_and_never_what_is_in_use(folder):
    size = 12 * V * 4 + 128
    kept(folder, Means(), name="old", made_with="0")
    kept(folder, Means(), name="one", most=2 * size)
    assert cache_size(folder) == (2, 2 * size)
    kept(folder, Means(), name="two", most=2 * size)
    assert sorted(f.name.partition("-")[0] for f in (folder / "cache").glob("*.npy")) == ["one", "two"]
    assert kept(folder, Means(), name="three", most=2 * size) is None
    assert cache_size(folder) == (2, 2 * size)
    assert kept(folder, Means(), name="large", most=size // 2) is None


def test_a_folder_from_elsewhere_has_nothing_of_its_user_written_or_deleted(folder, tmp_path):
    (tmp_path / "mine").mkdir()
    np.save(tmp_path / "mine" / "results.npy", np.zeros(1000))
    (tmp_path / "notes").write_text("mine")
    (folder / "cache").symlink_to(tmp_path / "mine")
    kept(folder, Means())
    (array,) = (tmp_path / "mine").glob("mean-*.npy")
    array.with_suffix(".npy.tmp").symlink_to(tmp_path / "notes")
    array.unlink()
    assert kept(folder, Means(), most=12 * V * 4 + 200) is not None
    assert (tmp_path / "notes").read_text() == "mine"
    assert (tmp_path / "mine" / "results.npy").is_file()


def test_two_who_need_the_same_at_once_compute_it_once(folder):
    both, make, found = threading.Barrier(2), Means(), []

    def slow(series) -> np.ndarray:
        threading.Event().wait(0.2)
        return make(series)

    def ask() -> None:
        both.wait()
        found.append(kept(folder, slow))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert make.calls == 1
    np.testing.assert_array_equal(found[0][0], found[1][0])


def test_info_says_how_large_the_cache_is(folder, capsys):
    kept(folder, Means())
    assert main(["info", str(folder)]) == 0
    said = capsys.readouterr().out
    assert str(folder / "cache") in said
    assert "--cache-gb" in said
