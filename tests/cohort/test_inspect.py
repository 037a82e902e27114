"""What ``bnt info`` finds: each defect is planted in a sound cohort and must be named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bnt.cli._main import main
from bnt.cohort import Cohort
from bnt.cohort import _inspect as inspect
from bnt.cohort._findings import layout
from bnt.cohort._inspect import Inspection, inspect_cohort
from bnt.cohort._triangle import n_edges
from bnt.errors import BadInput

N, V = 24, 8


def sound(**columns) -> tuple[np.ndarray, pd.DataFrame]:
    """Connectomes and participants with nothing to complain about."""
    rng = np.random.default_rng(0)
    edges = rng.uniform(-0.6, 0.9, (N, n_edges(V))).astype(np.float32)
    table = pd.DataFrame(
        {
            "participant_id": [f"sub-{i:02d}" for i in range(N)],
            "site": np.repeat(["A", "B"], N // 2),
            "n_volumes": np.repeat([150, 200], N // 2),
            "diagnosis": np.tile([0, 1], N // 2),
            "age": np.linspace(10, 20, N),
            "sex": np.tile(["M", "M", "F", "F"], N // 4),
            "mean_fd": np.linspace(0.2, 0.1, N),
            **columns,
        }
    )
    return edges, table


def states(report: Inspection, name: str) -> list[str]:
    return [check.state for check in report.checks if check.name == name]


def test_a_sound_cohort_has_no_warning() -> None:
    report = inspect_cohort(Cohort(*sound()))
    assert [check.text for check in report.checks if check.state == "warning"] == []
    assert (report.n_subjects, report.n_rois, len(report.sites)) == (N, V, 2)
    assert report.volumes == (150, 175.0, 200)


@pytest.mark.parametrize(
    ("volumes", "text"),
    [
        (np.repeat([80], N), "the shortest scan has 80 volumes; every scan has fewer than 100"),
        (np.repeat([80, 200], N // 2), "the shortest scan has 80 volumes; all 12 subjects of A have fewer than 100"),
        (np.tile([80, 200], N // 2), "the shortest scan has 80 volumes"),
    ],
)
def test_short_scans_are_of_everyone_of_sites_or_of_some(volumes, text) -> None:
    report = inspect_cohort(Cohort(*sound(n_volumes=volumes)))
    assert [check.text for check in report.checks if check.name == "scan length"] == [text]


def test_counts_per_site_and_class_are_those_of_a_loop() -> None:
    _, table = sound()
    report = inspect_cohort(Cohort(*sound()))
    for site in report.sites:
        for value, n in site.classes.items():
            rows = [r for _, r in table.iterrows() if r["site"] == site.name and str(r["diagnosis"]) == value]
            assert n == len(rows)


def test_age_by_class_is_the_mean_and_sd() -> None:
    _, table = sound()
    report = inspect_cohort(Cohort(*sound()))
    ages = table.loc[table["diagnosis"] == 1, "age"]
    assert report.classes[1].numbers["age"].mean == pytest.approx(ages.mean())
    assert report.classes[1].numbers["age"].sd == pytest.approx(ages.std())


def test_a_confound_is_measured_in_standard_deviations() -> None:
    motion = np.where(np.arange(N) % 2 == 1, 0.4, 0.1) + np.linspace(0, 0.1, N)
    report = inspect_cohort(Cohort(*sound(mean_fd=motion)))
    a, b = motion[::2], motion[1::2]
    expected = (b.mean() - a.mean()) / np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2)
    assert report.differences["mean_fd"] == pytest.approx(expected)
    assert "note" in states(report, "confounds")


def test_nan_and_infinity_are_counted_by_subject() -> None:
    edges, table = sound()
    edges[3, :2], edges[5, 0] = np.nan, np.inf
    report = inspect_cohort(Cohort(edges, table))
    assert report.values.not_finite == {"sub-03": 2, "sub-05": 1}
    assert states(report, "finite values") == ["warning"]


def test_fisher_z_given_as_pearson_is_noticed() -> None:
    edges, table = sound()
    report = inspect_cohort(Cohort(np.arctanh(edges), table, kind="pearson"))
    assert any("Fisher z given as pearson" in check.text for check in report.checks)


def test_fisher_z_that_says_so_is_in_order() -> None:
    edges, table = sound()
    report = inspect_cohort(Cohort(np.arctanh(edges), table, kind="fisher-z", diagonal=0.0))
    assert states(report, "range") == ["ok"]


def test_pearson_given_as_fisher_z_is_noticed() -> None:
    report = inspect_cohort(Cohort(*sound(), kind="shrunk-z", diagonal=0.0))
    assert states(report, "range") == ["warning"]


def test_a_few_values_beyond_one_name_their_subjects() -> None:
    edges, table = sound()
    edges[7, 4] = 1.5
    report = inspect_cohort(Cohort(edges, table))
    assert report.values.beyond_one == {"sub-07": 1}
    assert any("sub-07" in check.text and check.state == "warning" for check in report.checks)


def test_float16_rounding_is_not_beyond_one(tmp_path: Path) -> None:
    edges, table = sound()
    edges[:, 0] = 0.99999
    report = inspect_cohort(Cohort(edges, table).save(tmp_path / "half", dtype="float16"))
    assert report.dtype == "float16"
    assert states(report, "range") == ["ok"]


def test_rois_without_a_signal_are_counted() -> None:
    edges, table = sound()
    matrices = Cohort(edges, table).square(np.arange(N))
    for subject, roi in ((2, 1), (2, 6), (9, 1)):
        matrices[subject, roi, :] = matrices[subject, :, roi] = 0
    report = inspect_cohort(Cohort(matrices, table))
    assert report.values.without_signal == {"sub-02": 2, "sub-09": 1}
    assert report.values.without_signal_by_roi == {1: 2, 6: 1}
    assert report.sites[0].rois_without_signal == 3


def test_a_single_zero_edge_is_no_missing_roi() -> None:
    edges, table = sound()
    edges[0, :3] = 0
    assert inspect_cohort(Cohort(edges, table)).values.without_signal == {}


@pytest.mark.parametrize(("together", "state"), [(True, "note"), (False, "warning")])
def test_the_same_bytes_twice_are_a_duplicate(together: bool, state: str) -> None:
    edges, table = sound()
    edges[20] = edges[4]
    table["family"] = table["participant_id"]
    if together:
        table.loc[20, "family"] = "sub-04"
    report = inspect_cohort(Cohort(edges, table))
    assert report.values.duplicates == [["sub-04", "sub-20"]]
    assert states(report, "duplicate scans") == [state]


def test_asymmetric_sources_are_told_from_the_findings() -> None:
    found = [{"check": "asymmetric", "participant_id": "sub-03", "value": 0.25}]
    report = inspect_cohort(Cohort(*sound(), findings=found))
    assert states(report, "symmetry") == ["warning"]


def test_a_site_with_one_class_gives_the_label_away() -> None:
    report = inspect_cohort(Cohort(*sound(diagnosis=np.repeat([0, 1], N // 2))))
    assert states(report, "classes at sites") == ["warning"]


def test_a_label_with_gaps_keeps_its_codes() -> None:
    labels = np.tile([0.0, 1.0], N // 2)
    labels[:2] = np.nan
    cohort = Cohort(*sound(diagnosis=labels), levels={"diagnosis": {"0": "control", "1": "ASD"}})
    report = inspect_cohort(cohort)
    assert report.levels == {"0": "control", "1": "ASD"}
    assert report.missing["diagnosis"] == 2
    assert states(report, "diagnosis") == ["warning"]


def test_a_cohort_without_labels_is_described_all_the_same() -> None:
    edges, table = sound()
    report = inspect_cohort(Cohort(edges, table[["participant_id"]]))
    assert report.label is None
    assert report.classes[0].n == N


def test_an_unknown_label_is_refused() -> None:
    with pytest.raises(BadInput, match="no label 'height'; it has diagnosis, age, sex, mean_fd"):
        inspect_cohort(Cohort(*sound()), "height")


def test_a_continuous_label_is_described() -> None:
    edges, table = sound()
    cohort = Cohort(edges, table.assign(hamd=[np.nan, *np.arange(1.0, N)]))
    report = inspect_cohort(cohort, "hamd")
    assert (report.score.spread.n, report.score.missing) == (N - 1, 1)
    assert report.score.spread.mean == pytest.approx(N / 2)
    assert (report.score.smallest, report.score.largest, sum(report.score.counts)) == (1, N - 1, N - 1)
    assert report.sites[0].numbers["hamd"].n == 11
    text = "\n".join(layout(report))
    assert "Task: regression of hamd" in text
    assert "█" in text


def test_the_task_of_a_label_and_its_reason_are_shown() -> None:
    assert "Task: classification of diagnosis" in "\n".join(layout(inspect_cohort(Cohort(*sound()))))


@pytest.mark.parametrize(
    ("y", "task", "reason"),
    [
        (np.array(["F", "M"]), "classification", "text"),
        (np.arange(5), "classification", "5 different whole numbers"),
        (np.arange(6), "regression", "6 different numbers"),
        (np.array([0.5, 1.0]), "regression", "not whole"),
    ],
)
def test_the_sentence_about_the_task_is_what_is_done(y: np.ndarray, task: str, reason: str) -> None:
    from bnt.training._task import task_for

    sentence = inspect.task_sentence(y, "hamd")
    assert f"{task} of hamd" in sentence
    assert reason in sentence
    assert task_for(y).kind == task


def test_families_are_counted_by_people() -> None:
    edges, table = sound()
    table["family"] = ["A", "A", "B", "B", "B", *table["participant_id"][5:]]
    table["person"] = table["participant_id"].where(table.index != 4, table["participant_id"][3])
    report = inspect_cohort(Cohort(edges, table))
    assert report.families == (2, 4)  # the last two of B are scans of one person
    assert states(report, "families") == ["ok"]
    assert states(inspect_cohort(Cohort(*sound())), "families") == []


def test_a_view_is_described_not_the_whole() -> None:
    report = inspect_cohort(Cohort(*sound()).where(site="B"))
    assert (report.n_subjects, [site.name for site in report.sites]) == (N // 2, ["B"])


def test_the_block_size_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    edges, table = sound()
    edges[3, 0], edges[20] = np.nan, edges[4]
    cohort = Cohort(edges, table)
    expected = inspect_cohort(cohort)
    monkeypatch.setattr(inspect, "_SUBJECTS_AT_ONCE", 5)
    found = inspect_cohort(cohort)
    assert found.values.mean == pytest.approx(expected.values.mean)
    expected.values.mean = found.values.mean
    assert found.values == expected.values


def test_a_changed_byte_is_found_when_asked(tmp_path: Path) -> None:
    cohort = Cohort(*sound()).save(tmp_path / "c")
    assert inspect_cohort(cohort, verify=True).changed_files == []
    with open(tmp_path / "c" / "connectomes.npy", "rb+") as handle:
        handle.seek(-1, 2)
        handle.write(b"\x00")
    report = inspect_cohort(cohort, verify=True)
    assert report.changed_files == ["connectomes.npy"]
    assert states(report, "sha256") == ["warning"]


def test_the_command_prints_tables_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Cohort(*sound(), levels={"diagnosis": {"0": "control", "1": "ASD"}}).save(tmp_path / "c")
    assert main(["info", str(tmp_path / "c")]) == 0
    text = capsys.readouterr().out
    assert "24 subjects, 2 sites, 8 ROIs" in text
    assert "1 ASD" in text
    assert main(["info", str(tmp_path / "c"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["sites"][0]["classes"] == {"0": 6, "1": 6}


def test_the_command_refuses_what_is_no_cohort(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
