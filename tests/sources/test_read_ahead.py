"""Files that several processes read: the same cohort, the same errors, and nothing read twice after a kill."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from bnt.errors import BadInput
from bnt.sources import _images
from bnt.sources._ingest import import_cohort


def write_many(folder: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for i in range(n):
        lines = ["\t".join(f"roi{j}" for j in range(6))]
        lines += ["\t".join(f"{v:.6f}" for v in row) for row in rng.normal(size=(25, 6))]
        (folder / f"sub-{i:02d}_timeseries.tsv").write_text("\n".join(lines) + "\n")


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.suffix in (".npy", ".tsv")}


@pytest.fixture
def in_threads(monkeypatch):
    """Read ahead from two files on, in threads, given what can be sent to processes: those take seconds to start."""
    import joblib

    def delayed(function):
        return lambda *given: pickle.dumps(given) and real(function)(*given)

    real = joblib.delayed
    monkeypatch.setattr(joblib, "delayed", delayed)
    monkeypatch.setattr(_images, "AHEAD_FILES", 2)
    monkeypatch.setattr(joblib, "parallel_config", lambda **_: joblib.parallel.parallel_config(backend="threading"))


def test_the_cohort_is_the_same_whatever_the_number_of_processes(in_threads, tmp_path):
    write_many(tmp_path / "scans", 12)
    one, three = (import_cohort(tmp_path / "scans", tmp_path / f"jobs{n}", jobs=n) for n in (1, 3))
    assert contents(tmp_path / "jobs1") == contents(tmp_path / "jobs3")
    assert one.ids.tolist() == three.ids.tolist()
    assert not list(tmp_path.glob(".*")), "what was read ahead is left"


def test_a_killed_import_keeps_what_was_read_and_damage_of_it_is_noticed(in_threads, tmp_path, monkeypatch, capsys):
    write_many(tmp_path / "scans", 12)
    import_cohort(tmp_path / "scans", tmp_path / "whole", jobs=1)

    def killed(*_, **__):
        raise KeyboardInterrupt

    kept, place = {}, _images._place
    with monkeypatch.context() as patch:
        patch.setattr(_images, "ingest", killed)
        patch.setattr(_images, "_place", lambda work, scan: kept.setdefault(scan.file.name[:6], place(work, scan)))
        with pytest.raises(KeyboardInterrupt):
            import_cohort(tmp_path / "scans", tmp_path / "out", jobs=3)
    assert sorted(kept.values()) == sorted((tmp_path / ".out.extracted").iterdir())
    kept["sub-00"].write_bytes(kept["sub-00"].read_bytes()[:-20])
    kept["sub-01"].unlink()
    (tmp_path / "scans" / "sub-03_timeseries.tsv").touch()  # it may have changed
    import_cohort(tmp_path / "scans", tmp_path / "out", jobs=1)
    assert "10 of 12 files were read before" in capsys.readouterr().err
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_the_error_is_that_of_one_process(in_threads, tmp_path):
    write_many(tmp_path / "scans", 12)
    for i, text in ((4, "what\tis\tthis\n"), (9, "1\t2\nthree\t4\n")):
        (tmp_path / "scans" / f"sub-{i:02d}_timeseries.tsv").write_text(text)
    said = []
    for n in (1, 3):
        with pytest.raises(BadInput, match="sub-04_timeseries.tsv") as error:
            import_cohort(tmp_path / "scans", tmp_path / "out", jobs=n)
        said.append(str(error.value))
    assert said[0] == said[1]
    assert not (tmp_path / "out").exists()
