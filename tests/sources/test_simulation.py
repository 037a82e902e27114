"""The simulation: the same bits from the same seed, and an effect exactly where it was planted."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bnt
from bnt.cohort._triangle import endpoints
from bnt.errors import BadInput
from bnt.sources import _simulate as simulation
from bnt.sources._simulation_model import module_sizes

SMALL = {"n_subjects": 24, "n_rois": 20, "n_sites": 3}


def module_pairs(cohort) -> dict[tuple[str, str], np.ndarray]:
    """Mean Fisher z of the edges of each pair of networks, (subjects,)."""
    first, second = endpoints(cohort.n_rois)
    network = cohort.rois["network"].to_numpy()
    z = np.arctanh(cohort.connectomes)
    names = np.array(["/".join(sorted((a, b))) for a, b in zip(network[first], network[second])])
    return {tuple(name.split("/")): z[:, names == name].mean(1) for name in np.unique(names)}


def separation(cohort, label: np.ndarray) -> dict[tuple[str, str], float]:
    """Cohen's d between the classes in each pair of networks, the mean over all edges removed."""
    whole = np.arctanh(cohort.connectomes).mean(1)
    out = {}
    for pair, value in module_pairs(cohort).items():
        rest = value - np.polyval(np.polyfit(whole, value, 1), whole)
        a, b = rest[label == 0], rest[label == 1]
        out[pair] = (b.mean() - a.mean()) / np.sqrt((a.var() + b.var()) / 2)
    return out


def test_the_same_seed_gives_the_same_bits() -> None:
    one, two = (bnt.simulate_cohort(**SMALL, seed=3) for _ in range(2))
    assert one.connectomes.tobytes() == two.connectomes.tobytes()
    assert one.timeseries.stacked.tobytes() == two.timeseries.stacked.tobytes()
    assert one.participants.equals(two.participants)


def test_another_seed_gives_another_cohort() -> None:
    one, two = (bnt.simulate_cohort(**SMALL, n_volumes=120, seed=seed) for seed in (0, 1))
    assert not np.array_equal(one.connectomes, two.connectomes)


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_bits_do_not_depend_on_how_many_are_drawn_at_once(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = bnt.simulate_cohort(**SMALL)
    monkeypatch.setattr(simulation, "_SUBJECTS_AT_ONCE", at_once)
    found = bnt.simulate_cohort(**SMALL)
    assert found.timeseries.stacked.tobytes() == expected.timeseries.stacked.tobytes()
    assert found.connectomes.tobytes() == expected.connectomes.tobytes()


def test_streamed_to_disk_it_is_the_same_cohort(tmp_path: Path) -> None:
    memory = bnt.simulate_cohort(**SMALL)
    disk = bnt.simulate_cohort(**SMALL, out=tmp_path / "cohort")
    assert disk.connectomes.tobytes() == memory.connectomes.tobytes()
    assert disk.timeseries.stacked.tobytes() == memory.timeseries.stacked.tobytes()
    assert disk.ids.tolist() == memory.ids.tolist()
    assert disk.source == memory.source


def test_series_can_be_left_out(tmp_path: Path) -> None:
    with_series = bnt.simulate_cohort(**SMALL)
    without = bnt.simulate_cohort(**SMALL, series=False, out=tmp_path / "cohort")
    assert without.timeseries is None
    assert without.connectomes.tobytes() == with_series.connectomes.tobytes()
    assert without.participants["n_volumes"].tolist() == with_series.participants["n_volumes"].tolist()


def test_series_hold_frequencies_of_the_band_only() -> None:
    cohort = bnt.simulate_cohort(**SMALL)
    for i in (0, 12, 23):
        series, seconds = cohort.timeseries[i], cohort.participants["repetition_time"][i]
        frequency = np.fft.rfftfreq(len(series), seconds)
        power = (np.abs(np.fft.rfft(series.astype(float), axis=0)) ** 2).sum(1)
        inside = (frequency >= 0.01) & (frequency <= 0.1)
        assert power[~inside].sum() < 1e-9 * power.sum()
        assert series.dtype == np.float32


def test_connectomes_are_those_of_the_series() -> None:
    cohort = bnt.simulate_cohort(**SMALL)
    np.testing.assert_allclose(cohort.square([5])[0], np.corrcoef(cohort.timeseries[5].T), atol=1e-5)


def test_sites_differ_in_length_and_share_it_within() -> None:
    table = bnt.simulate_cohort(60, 20, 6).participants
    assert (table.groupby("site")["n_volumes"].nunique() == 1).all()
    assert table["n_volumes"].nunique() > 1


def test_networks_are_more_coupled_within_than_between() -> None:
    pairs = module_pairs(bnt.simulate_cohort(60, 60, 3))
    within = np.mean([v.mean() for (a, b), v in pairs.items() if a == b])
    between = np.mean([v.mean() for (a, b), v in pairs.items() if a != b])
    assert within > between + 0.1


def test_a_site_shifts_its_subjects() -> None:
    """Between two halves of a site the mean connectome agrees better than between sites."""
    cohort = bnt.simulate_cohort(160, 40, 4, effect=0.0, seed=2)
    z = np.arctanh(cohort.connectomes)
    z -= z.mean(0)
    halves = [(z[cohort.sites == s][::2].mean(0), z[cohort.sites == s][1::2].mean(0)) for s in np.unique(cohort.sites)]
    match = np.array([[np.corrcoef(a, b)[0, 1] for _, b in halves] for a, _ in halves])
    assert (match.argmax(1) == np.arange(len(halves))).all()


def test_the_effect_stands_where_it_was_planted_and_in_its_direction() -> None:
    pairs = [("Visual", "Limbic"), ("Frontoparietal", "Frontoparietal", "+")]
    cohort = bnt.simulate_cohort(240, 60, 4, effect=3.0, effect_pairs=pairs, sex_effect=0.0)
    assert cohort.source["effect_pairs"] == [["Visual", "Limbic"], ["Frontoparietal", "Frontoparietal"]]
    d = separation(cohort, cohort.labels("diagnosis"))
    planted = {("Limbic", "Visual"), ("Frontoparietal", "Frontoparietal")}
    assert set(sorted(d, key=lambda pair: -abs(d[pair]))[:2]) == planted
    assert d["Limbic", "Visual"] < -0.8
    assert d["Frontoparietal", "Frontoparietal"] > 0.8


def test_no_effect_is_planted_when_none_is_asked_for() -> None:
    """At effect 0 the bits do not depend on where the effect would be."""
    one = bnt.simulate_cohort(**SMALL, effect=0.0)
    two = bnt.simulate_cohort(**SMALL, effect=0.0, effect_pairs=["Visual:Limbic"])
    assert one.connectomes.tobytes() == two.connectomes.tobytes()


def test_sex_has_an_effect_of_its_own() -> None:
    cohort = bnt.simulate_cohort(240, 60, 4, effect=0.0, sex_effect=3.0, male_share=0.5)
    d = separation(cohort, (cohort.labels("sex") == "M").astype(int))
    planted = {tuple(sorted(pair)) for pair in cohort.source["sex_pairs"]}
    assert set(sorted(d, key=lambda pair: -abs(d[pair]))[:3]) == planted


@settings(max_examples=60, deadline=None)
@given(n_sites=st.integers(1, 12), spare=st.integers(0, 60), seed=st.integers(0, 2**32 - 1))
def test_every_site_has_both_classes(n_sites: int, spare: int, seed: int) -> None:
    plan = simulation.Simulation(4 * n_sites + spare, 14, n_sites, seed=seed)
    counts = plan.participants.groupby("site")["diagnosis"].agg(["size", "sum"])
    assert len(counts) == n_sites
    assert counts["size"].sum() == 4 * n_sites + spare
    assert ((counts["sum"] > 0) & (counts["sum"] < counts["size"])).all()


@settings(max_examples=100, deadline=None)
@given(n_modules=st.integers(1, 20), spare=st.integers(0, 300))
def test_module_sizes_add_up(n_modules: int, spare: int) -> None:
    sizes = module_sizes(2 * n_modules + spare, n_modules)
    assert sizes.sum() == 2 * n_modules + spare
    assert len(sizes) == n_modules
    assert sizes.min() >= 2


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"n_subjects": 7, "n_sites": 2}, "too few for 2 sites"),
        ({"n_rois": 13}, "cannot hold 7 modules"),
        ({"n_modules": 0}, "cannot hold 0 modules"),
        ({"n_volumes": 10}, "ask for more volumes"),
        ({"effect_pairs": ["Default:Moon"]}, "no module 'Moon'"),
        ({"effect_pairs": ["Default"]}, "not of the form"),
        ({"effect": float("nan")}, "finite"),
        ({"male_share": 1.5}, "between 0 and 1"),
        ({"seed": -1}, "seed"),
        ({"kind": "covariance"}, "covariance"),
    ],
)
def test_impossible_requests_are_refused_in_a_sentence(options: dict, found: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=found):
        bnt.simulate_cohort(**{**SMALL, **options}, out=tmp_path / "cohort")
    assert not (tmp_path / "cohort").exists()


def test_the_command_has_the_defaults_of_the_function() -> None:
    from bnt.cli._data_commands import Simulate

    names = {"subjects": "n_subjects", "rois": "n_rois", "sites": "n_sites", "modules": "n_modules"}
    names["volumes"] = "n_volumes"
    parameters = inspect.signature(bnt.simulate_cohort).parameters
    for field in fields(Simulate):
        if field.name not in ("out", "effect_pairs"):
            assert field.default == parameters[names.get(field.name, field.name)].default, field.name


def test_the_command_writes_a_cohort_and_says_what_is_planted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bnt.cli._main import main

    sizes = ["--subjects", "16", "--rois", "14", "--sites", "2", "--no-series"]
    assert main(["simulate", str(tmp_path / "c"), *sizes, "--effect-pairs", "Default:Visual:+"]) == 0
    assert "Default-Visual (stronger in patients)" in capsys.readouterr().out
    assert bnt.load_cohort(tmp_path / "c").source["effect_pairs"] == [["Default", "Visual"]]
