"""Who is who, and which data, belongs to the store: a table that users edit cannot switch the guard off."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bnt
from bnt.cohort import Cohort, _scans, load_cohort
from bnt.cohort._inspect import inspect_cohort
from bnt.errors import BadInput
from bnt.splits import check_split
from bnt.training._config import data_digest

N = 24


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cohort in which subject 5 is subject 0 again, 6 is 1 with noise, 7 is 2 in float16; 3 and 8 are a family."""
    cohort = bnt.simulate_cohort(n_subjects=N, n_rois=16, n_sites=2, seed=3, series=True)
    edges = cohort.connectomes.copy()
    edges[5] = edges[0]
    edges[6] = edges[1] + np.random.default_rng(0).normal(0, 1e-6, edges.shape[1])
    edges[7] = edges[2].astype(np.float16)
    people = cohort.participants.copy()
    people.loc[[3, 8], "family"] = "twins"
    folder = tmp_path_factory.mktemp("trust") / "cohort"
    Cohort(edges, people, timeseries=list(cohort.timeseries)).save(folder)
    return folder


@pytest.fixture
def copy(twins: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(twins, tmp_path / "cohort", copy_function=shutil.copy2))


def refused(cohort: Cohort, a: int, b: int) -> bool:
    rest = list(range(9, N))
    try:
        check_split(cohort, [a, *rest[:5]], rest[5:8], [b, *rest[8:]])
    except BadInput:
        return True
    return False


def without_ours(people: pd.DataFrame) -> pd.DataFrame:
    return people.drop(columns=[c for c in ("family", "scan", "group", "n_volumes") if c in people])


def with_other_values(people: pd.DataFrame) -> pd.DataFrame:
    ids = people["participant_id"]
    return people.assign(family=ids, group=ids, scan=ids, n_volumes=7)


def in_another_order(people: pd.DataFrame) -> pd.DataFrame:
    return people.iloc[::-1]


@pytest.mark.parametrize("edit", [without_ours, with_other_values, in_another_order])
@pytest.mark.parametrize("pair", [(0, 5), (1, 6), (2, 7), (3, 8)])
def test_an_edited_participants_table_leaves_the_guard_on(copy, edit, pair):
    file = copy / "participants.tsv"
    before = load_cohort(copy)
    edit(pd.read_csv(file, sep="\t", dtype=str)).assign(new="x").to_csv(file, sep="\t", index=False)
    cohort = load_cohort(copy)
    assert refused(cohort, *pair)
    assert not refused(cohort, 0, 8)
    assert cohort.ids.tolist() == before.ids.tolist()
    assert [len(s) for s in cohort.timeseries] == [len(s) for s in before.timeseries]


def test_a_family_added_to_the_table_is_guarded_too(copy):
    file = copy / "participants.tsv"
    people = pd.read_csv(file, sep="\t", dtype=str)
    people.loc[[0, 8], "family"] = "siblings"
    people.to_csv(file, sep="\t", index=False)
    assert refused(load_cohort(copy), 0, 8)
    assert refused(load_cohort(copy), 3, 8)


def test_the_stores_own_table_is_not_to_be_edited(copy):
    file = copy / "scans.tsv"
    file.write_text(file.read_text().replace("twins", "other"))
    with pytest.raises(BadInput, match=r"scans\.tsv"):
        load_cohort(copy)


def older(folder: Path) -> None:
    """Make of a cohort one of bnt 0.2: digests and groups in the participants table."""
    scans = pd.read_csv(folder / "scans.tsv", sep="\t", dtype=str)
    people = pd.read_csv(folder / "participants.tsv", sep="\t").rename(columns={"family": "group"})
    people.assign(scan="stale").to_csv(folder / "participants.tsv", sep="\t", index=False)
    assert people["participant_id"].tolist() == scans["participant_id"].tolist()
    (folder / "scans.tsv").unlink()
    manifest = json.loads((folder / "cohort.json").read_text())
    del manifest["sha256"]["scans.tsv"]
    (folder / ".times.json").unlink()
    (folder / "cohort.json").write_text(json.dumps(manifest))


def test_digests_that_an_older_cohort_lacks_are_computed_from_its_arrays(copy):
    new = load_cohort(copy)
    older(copy)
    old = load_cohort(copy)
    assert old.digests.tolist() == new.digests.tolist()
    assert old.scans.tolist() == new.scans.tolist()
    assert old.families.tolist() == new.families.tolist()
    assert all(refused(old, *pair) for pair in [(0, 5), (1, 6), (2, 7), (3, 8)])
    assert "scan" not in old.participants
    assert data_digest(old, "diagnosis") == data_digest(new, "diagnosis")


def test_an_older_cohort_without_its_groups_is_refused(copy):
    older(copy)
    people = pd.read_csv(copy / "participants.tsv", sep="\t")
    people.drop(columns=["scan", "group"]).to_csv(copy / "participants.tsv", sep="\t", index=False)
    with pytest.raises(BadInput, match="group"):
        load_cohort(copy)


def test_info_names_scans_that_are_the_same_and_nearly_the_same(twins):
    report = inspect_cohort(load_cohort(twins))
    ids = load_cohort(twins).ids
    assert report.values.duplicates == [[ids[0], ids[5]]]
    assert report.values.near_duplicates == [[ids[1], ids[6]], [ids[2], ids[7]]]
    found = [c.text for c in report.checks if c.name == "duplicate scans" and c.state == "warning"]
    assert sum("≈" in text and "2%" in text for text in found) == 2


def naive_scans(edges: np.ndarray) -> list[int]:
    """Every pair by its whole vectors: the first subject whose scan each has."""
    first = list(range(len(edges)))
    for i in range(len(edges)):
        for k in range(i):
            apart = np.sqrt(np.mean((edges[i] - edges[k]) ** 2))
            if apart <= 0.02 * min(edges[i].std(), edges[k].std()):
                first[i] = first[k]
                break
    return first


@pytest.mark.parametrize("noise", [1e-7, 1e-4, 2e-3])
def test_near_duplicates_are_those_that_every_pair_compared_gives(noise):
    rng = np.random.default_rng(1)
    edges = rng.normal(0.2, 0.25, (60, 190))
    edges[40:50] = edges[:10] + rng.normal(0, noise, (10, 190))
    edges[50] = edges[40] + rng.normal(0, noise, 190)
    edges[51] = 0.0  # says nothing: no spread
    edges[52] = 0.3
    found = Cohort(edges, pd.DataFrame({"participant_id": [str(i) for i in range(60)]})).scans
    first = {name: i for i, name in reversed(list(enumerate(found)))}
    assert [first[name] for name in found] == naive_scans(edges)


def test_blocks_of_pairs_give_what_all_pairs_give(monkeypatch):
    """People who are so alike that most pairs are candidates, chains of scans included, in many small blocks."""
    monkeypatch.setattr(_scans, "_BLOCK", 16)
    monkeypatch.setattr(_scans, "_NUMBERS", 5 * 190)
    rng = np.random.default_rng(2)
    edges = rng.normal(0.2, 0.25, 190) + rng.normal(0, 0.0036, (120, 190))
    pairs = np.concatenate(list(_scans._close(_scans.sketches(edges))))
    rms = np.sqrt(np.mean((edges[:, None] - edges) ** 2, axis=2))
    same = rms <= 0.02 * np.minimum.outer(edges.std(axis=1), edges.std(axis=1))
    n_same = (same.sum() - len(edges)) // 2
    assert 0 < n_same < len(pairs)
    assert {tuple(sorted(pair)) for pair in pairs.tolist()} >= {(i, k) for i, k in np.argwhere(same).tolist() if i < k}
    reached = np.linalg.matrix_power(same.astype(float), 64) > 0
    names = _scans.same_scans([str(i) for i in range(120)], _scans.sketches(edges), 190, lambda rows: edges[rows])
    assert names == [str(row.argmax()) for row in reached]
    assert 1 < len(set(names)) < 120


def test_the_search_for_near_duplicates_never_holds_all_pairs(monkeypatch):
    monkeypatch.setattr(_scans, "_BLOCK", 100)
    sketched = np.random.default_rng(0).normal(0, 1e-3, (1000, _scans.N_PROJECTIONS))  # everyone is like everyone
    blocks = [len(pairs) for pairs in _scans._close(sketched)]
    assert sum(blocks) == 1000 * 999 // 2
    assert max(blocks) <= _scans._BLOCK**2


def overwrite(folder: Path, name: str, keep_time: bool) -> None:
    array = np.load(folder / name, mmap_mode="r+")
    before = os.stat(folder / name)
    array[len(array) // 2] = np.random.default_rng(0).normal(0, 0.2, array.shape[1])  # no first or last volume
    array.flush()
    os.utime(folder / name, ns=(before.st_atime_ns, before.st_mtime_ns if keep_time else before.st_mtime_ns + 10**9))


@pytest.mark.parametrize("name", ["connectomes.npy", "timeseries.npy"])
def test_arrays_overwritten_in_place_have_another_digest(copy, name):
    before = data_digest(load_cohort(copy), "diagnosis")
    overwrite(copy, name, keep_time=False)
    cohort = load_cohort(copy)
    assert data_digest(cohort, "diagnosis") != before
    assert len(cohort.changed()) == 1
    assert [c.name for c in inspect_cohort(cohort).checks if c.state == "warning" and "written" in c.text] == ["arrays"]


@pytest.mark.parametrize("name", ["connectomes.npy", "timeseries.npy"])
def test_reading_all_finds_what_size_and_time_do_not_show(copy, name):
    overwrite(copy, name, keep_time=True)
    assert not len(load_cohort(copy).changed())
    assert len(load_cohort(copy).changed(read=True)) == 1


def test_a_copy_with_other_times_is_the_same_data(twins, tmp_path):
    shutil.copytree(twins, tmp_path / "copied", copy_function=shutil.copyfile)
    copied = load_cohort(tmp_path / "copied")
    assert data_digest(copied) == data_digest(load_cohort(twins))
    assert not len(copied.changed())


def test_opening_reads_no_array(twins, monkeypatch):
    def never(*_: object) -> None:
        raise AssertionError("an array was read")

    monkeypatch.setattr("bnt.cohort._cohort.read_rows", never)
    cohort = load_cohort(twins)
    assert len(cohort.identities) == N
    assert len(data_digest(cohort)) == 64
