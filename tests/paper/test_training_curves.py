"""The training curves: kept one by one, refused rather than overwritten, and not stopped by one that fails."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.paper import _curves as curves
from bnt.paper._plan import Plan
from bnt.studies._job import configure

SMALL = {"vanilla": {"ffn": 8, "n_layers": 1, "n_heads": 2}}


@pytest.fixture
def plan(cohort, tmp_path):
    lines: list[str] = []
    return Plan(
        cohort=cohort, out=tmp_path / "out", splits=1, epochs=1, model_options=SMALL, what="curves", say=lines.append
    )


class Killer:
    """A watcher that kills the first process of one name as soon as it is there."""

    def __init__(self, name: str) -> None:
        self.name, self.killed = name, 0

    def __enter__(self) -> Killer:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, *_: object) -> None:
        for process in multiprocessing.active_children():
            if process.name == self.name and not self.killed and process.pid:
                self.killed = process.pid
                os.kill(process.pid, signal.SIGKILL)


def test_a_killed_and_a_failed_curve_are_said_and_the_same_command_goes_on(plan):
    jobs = curves.jobs_of(plan, [plan.variant("vanilla", "vanilla")], list(curves.SAMPLINGS))
    jobs += curves.jobs_of(replace(plan, split_seed=1), [plan.variant("other", "vanilla")], ["random"])
    names = [job.name for job in jobs]
    assert names == ["vanilla--site-stratified--split0", "vanilla--random--split0", "other--random--split0"]
    blocked = plan.out / "curves" / names[1]
    blocked.parent.mkdir(parents=True)
    blocked.write_text("not a folder")
    killer = Killer(names[0])
    table, failures = curves.run_curves(replace(plan, watch=lambda: killer), jobs)
    assert set(table["model"]) == {"other"}
    assert failures[names[0]].startswith("its process was killed by signal 9")
    assert failures[names[1]].startswith("FileExistsError")
    assert "killed by signal 9" in (plan.out / "failures.csv").read_text()
    kept = (plan.out / "curves" / names[2] / curves.CURVE).stat().st_mtime_ns
    blocked.unlink()
    table, failures = curves.run_curves(plan, jobs)
    assert failures == {}
    assert not (plan.out / "failures.csv").exists()
    assert len(table) == 3
    assert {f.name for f in (plan.out / "curves" / names[0]).iterdir()} == {"config.toml", curves.CURVE}
    assert (plan.out / "curves" / names[2] / curves.CURVE).stat().st_mtime_ns == kept


class Interrupted(Exception):
    """Raised in place of a kill, between two epochs."""


def test_an_interrupted_curve_goes_on_to_the_same_lines(plan, tmp_path):
    plan = replace(plan, epochs=4)
    (job,) = curves.jobs_of(plan, [plan.variant("vanilla", "vanilla")], ["random"])
    config = configure(job, plan.cohort)
    folders = tmp_path / "whole", tmp_path / "interrupted"
    for folder in folders:
        folder.mkdir()
    whole = curves.trace(plan.cohort, job.split, config, folders[0], lambda _: None)
    assert [line["epoch"] for line in whole] == [1, 2, 3, 4]
    assert all(0 <= line["test"] <= 1 for line in whole)

    def kill(line):
        if line["epoch"] == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        curves.trace(plan.cohort, job.split, config, folders[1], kill)
    told: list[int] = []
    again = curves.trace(plan.cohort, job.split, config, folders[1], lambda line: told.append(line["epoch"]))
    assert told == [3, 4]
    assert again == whole


def test_each_model_has_its_own_recipe_with_every_epoch_scored(plan):
    plan = replace(plan, epochs=None)
    jobs = curves.jobs_of(plan, [plan.variant(m, m) for m in ("vanilla", "bnt")], ["random"])
    found = {job.variant.name: job.variant.recipe for job in jobs}
    assert (found["vanilla"].batch_size, found["vanilla"].min_steps) == (16, 528)
    assert (found["bnt"].batch_size, found["bnt"].min_steps) == (8, 1056)
    assert all((r.ema, r.patience, r.select) == (0.0, 0, "last") for r in found.values())
    curves_of = {"epoch": [1, 2], "validation": [0.5, 0.6], "test": [0.5, 0.7], "loss": [1.0, 1.0]}
    table = pd.DataFrame({"model": "bnt", "sampling": "random", "split": "split0", **curves_of})
    text = curves.curves_text(plan, jobs, table)
    assert "264 epochs, batch 16 (`bnt`: 212 epochs, batch 8)" in text  # 42 training subjects
    assert "| `bnt` | random | 5.0 | 20.0 |" in text


def test_the_time_is_told_by_each_models_own_steps(plan, monkeypatch):
    monkeypatch.setattr(curves, "step_seconds", lambda *_, **__: 0.1)
    plan = replace(plan, epochs=None)
    jobs = curves.jobs_of(plan, [plan.variant("bnt", "bnt")], ["random"])
    lines: list[str] = []
    curves.announce_curves(replace(plan, say=lines.append), jobs, jobs)
    # 1,060 steps of 0.1 s, 15 % for validation, 30 % for the test part: 158 s
    assert lines == ["1 of 1 curves to train, 1 at a time: about 3 min."]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"protocol": "kfold"}, "protocol kfold"),
        ({"seeds": (1, 2)}, "more than one seed"),
        ({"engine": "ray"}, "engine ray"),
        ({"address": "auto"}, "an address"),
    ],
)
def test_options_without_a_meaning_are_refused_or_said_within_all(plan, settings, said):
    with pytest.raises(BadInput, match=said):
        curves.curves(replace(plan, **settings))
    assert not plan.out.exists()
    lines: list[str] = []
    curves.check_options(replace(plan, together=True, say=lines.append, **settings))
    assert said in lines[0]


def test_one_site_is_said_and_nothing_is_called_stratified(plan, tmp_path):
    table = plan.cohort.participants.assign(site="A")
    one = Cohort(np.asarray(plan.cohort.connectomes), table).save(tmp_path / "one")
    plan = replace(plan, cohort=one, only=("vanilla",))
    table, text, figure = curves.curves(plan)
    assert set(table["sampling"]) == {"random"}
    assert "The cohort has one site, so there is nothing to stratify by" in text
    assert "stratified by site" not in text
    assert len(figure.axes) == 1


def test_sets_that_lack_a_class_are_said_first(plan, tmp_path):
    table = plan.cohort.participants.assign(diagnosis=[1] * 4 + [0] * 56)  # six are in a validation set
    rare = Cohort(np.asarray(plan.cohort.connectomes), table).save(tmp_path / "rare")
    lines: list[str] = []
    _, text, _ = curves.curves(replace(plan, cohort=rare, only=("vanilla",), say=lines.append))
    assert lines[0].startswith("In 2 of 2 splits a validation or test set lacks a class: its AUROC is undefined")
    assert lines[0] in text
